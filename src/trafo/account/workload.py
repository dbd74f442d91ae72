"""The workload of a model, batch size, sequence length and phase, and its passes over random ids.

train    forward and backward pass over all tokens, then an update
prefill  forward pass over a prompt, filling the KV cache, up to the first new token
decode   one more token for each sequence, which attends to all others through the KV cache

The passes are for dry runs on the meta device and for real ones. A language model reads ids; an
encoder-decoder reads a source, then writes a target from one token on.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.optim import Optimizer

from trafo.errors import require_at_least, require_choice
from trafo.fast import head_loss

Phase = Literal["train", "prefill", "decode"]
NumberType = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A batch of one phase. In decode, `seq` counts the tokens seen, the new one among them."""

    seq: int
    source_seq: int | None = None
    """tokens of the source, in an encoder-decoder; None: as many as `seq`"""
    batch_size: int = 1
    phase: Phase = "train"
    dtype: NumberType = "float32"

    def __post_init__(self) -> None:
        sizes = {"seq": self.seq, "source_seq": self.source_seq, "batch_size": self.batch_size}
        require_at_least(1, **sizes)
        require_choice(get_args(Phase), phase=self.phase)
        require_choice(get_args(NumberType), dtype=self.dtype)

    @property
    def source(self) -> int:
        """Tokens of the source."""
        return self.source_seq or self.seq

    @property
    def is_training(self) -> bool:
        """Whether there is a backward pass."""
        return self.phase == "train"

    @property
    def number_bytes(self) -> int:
        """Bytes of a number of this data type."""
        dtype: torch.dtype = getattr(torch, self.dtype)
        return dtype.itemsize


def loss(model: Any, work: Workload) -> Tensor:
    """Compute the loss of a training step, with the ids themselves as targets."""
    ids = _ids(model, work, work.seq)
    return head_loss(model, model.hidden_states(ids, *_encode(model, work)), ids)


def train_step(model: Any, optimizers: Iterable[Optimizer], work: Workload) -> None:
    """Run a forward and a backward pass, and an update."""
    loss(model, work).backward()  # type: ignore[no-untyped-call]
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()


def prepare(model: Any, work: Workload) -> tuple[Any, tuple[Any, ...]]:
    """Make a KV cache and encode a source: empty for prefill, for decode of all tokens before."""
    cache = model.make_cache(work.batch_size, work.seq)
    _pretend(cache, work, 0)
    source: tuple[Any, ...] = ()
    if work.phase == "decode":
        source = _encode(model, work)
        if source:
            generate(model, work, cache, source)  # attention to the source is cached, too
        _pretend(cache, work, work.seq - 1)
    return cache, source


def generate(model: Any, work: Workload, cache: Any, source: tuple[Any, ...]) -> None:
    """Read the prompt (or source), or one more token, up to the logits of the last token."""
    source = source or _encode(model, work)
    ids = _ids(model, work, work.seq if work.phase == "prefill" and not source else 1)
    model.logits(model.hidden_states(ids, *source, cache=cache)[:, -1:])


def _encode(model: Any, work: Workload) -> tuple[Any, ...]:
    """Encode what the decoder attends to, nothing in a language model."""
    if not hasattr(model.config, "source_vocab_size"):
        return ()
    return (model.encode(_ids(model, work, work.source, "source_vocab_size")),)


def _pretend(cache: Any, work: Workload, num_tokens: int) -> None:
    """Set the length of a KV cache, which is counted on the CPU, see `torch_private`."""
    kv_cache = getattr(cache, "target", cache)
    if hasattr(kv_cache, "lengths"):
        kv_cache.lengths = torch.full((work.batch_size,), num_tokens)


def _ids(model: Any, work: Workload, seq: int, vocab: str = "") -> Tensor:
    """Draw random ids without padding."""
    names = (vocab, "vocab_size", "target_vocab_size")
    size = next(getattr(model.config, name) for name in names if hasattr(model.config, name))
    return torch.randint(1, size, (work.batch_size, seq), device=model.head_weight.device)
