"""What all models share: checks of their configs and ids, and evaluation mode."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module

from trafo.errors import InputError, require, require_at_least
from trafo.nn import Embedding

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
    """The rows of these ids. torch looks for wrong ones anyway; here it is said in words."""
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
