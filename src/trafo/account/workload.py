"""What the model is asked to do: how many rows of how many tokens, and in which phase.

train    forward and backward pass over all tokens, then an update
prefill  forward pass over a prompt, filling the cache: everything until the first token comes out
decode   one more token for each row, which sees all the others through the cache
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from trafo.errors import ConfigError

Phase = Literal["train", "prefill", "decode"]
NumberType = Literal["float32", "bfloat16", "float16"]

BYTES: dict[NumberType, int] = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A batch of one phase. In decode, `seq` counts the tokens seen, the new one among them."""

    seq: int
    source_seq: int | None = None
    """tokens of the source, in an encoder-decoder; as many as `seq` unless told otherwise"""
    batch_size: int = 1
    phase: Phase = "train"
    dtype: NumberType = "float32"

    def __post_init__(self) -> None:
        for name in ("seq", "source_seq", "batch_size"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} is {value}", hint="it must be at least 1")
        for name, choices in (("phase", get_args(Phase)), ("dtype", get_args(NumberType))):
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(
                    f"{name} is {value!r}", hint=f"choose one of {', '.join(choices)}"
                )

    @property
    def source(self) -> int:
        return self.source_seq or self.seq

    @property
    def is_training(self) -> bool:
        return self.phase == "train"

    @property
    def new_tokens(self) -> int:
        """Tokens of a row that run through the layers of a language model."""
        return 1 if self.phase == "decode" else self.seq

    @property
    def target_tokens(self) -> int:
        """The same for a decoder that writes what an encoder read: it begins with one token."""
        return self.seq if self.phase == "train" else 1

    @property
    def number_bytes(self) -> int:
        return BYTES[self.dtype]
