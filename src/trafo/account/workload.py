"""The workload of a model: batch size, sequence length and phase.

train    forward and backward pass over all tokens, then an update
prefill  forward pass over a prompt, filling the KV cache, up to the first new token
decode   one more token for each sequence, which attends to all others through the KV cache
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch

from trafo.errors import require_at_least, require_choice

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
