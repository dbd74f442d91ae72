"""What all models share: their interface, checks of configs and ids, and evaluation mode."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module

from trafo.errors import InputError, require, require_at_least
from trafo.nn import Embedding


class SequenceModel(Module):
    """A model that gives logits for the token after each id, some after reading a source.

    Training, evaluation and generation need no more of a model than this.
    """

    config: Any
    """its fields describe the model; all have `context_length`, which is None without a limit"""
    lm_head: Any
    """the output head; None: the embedding table is the head too"""
    has_source: bool = False
    """whether `encode` must read a source before there are hidden states"""

    def encode(self, source_ids: Any) -> Any:
        """Encode the source once for all steps, or return None in a model without a source."""
        return None

    def hidden_states(
        self, ids: Any, memory: Any, *, cache: Any = None, lengths: Any = None
    ) -> Tensor:
        """Final hidden states, without the head.

        `memory` is the encoded source. With a `cache` the ids continue its tokens, and `lengths`
        says how many of each row are real.
        """
        raise NotImplementedError

    def decode(self, ids: Any, memory: Any, *, cache: Any = None, lengths: Any = None) -> Tensor:
        """Logits for the token after each position, with the arguments of `hidden_states`."""
        return self.logits(self.hidden_states(ids, memory, cache=cache, lengths=lengths))

    def logits(self, states: Any) -> Tensor:
        """The output head, applied to any states."""
        raise NotImplementedError

    @property
    def head_weight(self) -> Tensor:
        """Matrix of the output head, which is the embedding table if tied."""
        raise NotImplementedError

    def make_cache(self, batch: int, capacity: int | None = None) -> Any:
        """Make an empty cache for `batch` rows of `capacity` tokens (None: the context)."""
        raise NotImplementedError

    def blocks(self) -> dict[str, Module]:
        """The layers that can be gathered one at a time, by name."""
        return {}


_LARGEST = 2**40
"""size of anything; torch cannot count beyond 2^63"""


def require_positive(config: Any, names: Iterable[str]) -> None:
    """Each named field is a whole number from 1 to 2^40 (or None, where the field allows it)."""
    for name in names:
        value = getattr(config, name)
        is_whole = value is None or isinstance(value, int)
        require(is_whole, f"{name} is {value!r}", "it must be a whole number")
        require_at_least(1, **{name: value})
        require(value is None or value <= _LARGEST, f"{name} is {value}", "it must be at most 2^40")


def require_fits_context(ids: Tensor, context_length: int) -> None:
    """`ids` are a batch of sequences that are not longer than the context."""
    require_ids(ids)
    if ids.shape[-1] > context_length:
        raise InputError(
            f"the input has {ids.shape[-1]} tokens, more than the context of {context_length}",
            hint="shorten the input or choose a larger context_length",
        )


def require_ids(ids: Tensor) -> None:
    """`ids` are a batch of sequences of whole numbers."""
    kind = ids.dtype if isinstance(ids, Tensor) else type(ids).__name__
    if kind not in (torch.int64, torch.int32):
        hint = "torch.tensor([[1, 2, 3]]) is a batch of one sequence"
        raise InputError(f"ids are {kind}, expected a tensor of whole numbers", hint=hint)
    if ids.ndim != 2 or not ids.numel():
        raise InputError(
            f"ids have the shape {tuple(ids.shape)}, expected (batch, seq), both at least 1",
            hint="ids[None] makes a batch of one sequence",
        )


def embed(table: Embedding, ids: Int[Tensor, "batch seq"]) -> Float[Tensor, "batch seq d_model"]:
    """Look up the rows of these ids, with an error in words if one is out of range."""
    try:
        rows: Tensor = table(ids)
    except IndexError:
        last = len(table.weight) - 1
        wrong = next(i for i in (ids.min().item(), ids.max().item()) if not 0 <= i <= last)
        hint = f"ids are whole numbers from 0 to {last:,}"
        raise InputError(f"{wrong:,} is not an id of this model", hint=hint) from None
    return rows


@contextmanager
def evaluating(model: Module) -> Iterator[None]:
    """`with evaluating(model): ...` runs the block in evaluation mode."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
