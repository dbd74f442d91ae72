"""RoPE (Su et al., 2021): attention alone sees a set, rotary positions tell it the order.

The pair (x_2k, x_2k+1) at position i is rotated by the angle i theta^(-2k/d). A query at i and a
key at j then meet at the angle of i - j: only distance counts.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module

from trafo.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class RotaryScaling:
    """RoPE scaling: slower rotation, for contexts longer than those of the training.

    `linear` divides all frequencies by the factor (Chen et al., 2023). `llama3` (Llama 3.1) divides
    those with wavelengths above the original context / low, keeps those with wavelengths below the
    original context / high, and interpolates in between.
    """

    kind: Literal["linear", "llama3"]
    factor: float
    low: float = 1.0
    high: float = 4.0
    original_context: int = 8192

    def apply(self, frequencies: Float[Tensor, " pair"]) -> Float[Tensor, " pair"]:
        """The scaled frequencies."""
        if self.kind == "linear":
            return frequencies / self.factor
        waves = self.original_context * frequencies / (2 * math.pi)  # in the original context
        kept = ((waves - self.low) / (self.high - self.low)).clamp(0, 1)
        return frequencies * (kept + (1 - kept) / self.factor)


def rotary_frequencies(theta: float, size: int) -> Float[Tensor, " pair"]:
    """theta^(-2k/size) for every pair k."""
    return theta ** -(torch.arange(0, size, 2, dtype=torch.float64) / size)


def angles(
    theta: float, size: int, max_seq_len: int, scaling: RotaryScaling | None = None
) -> Float[Tensor, "position pair"]:
    """i theta^(-2k/size) for every position i and pair k, exact enough for far positions."""
    frequencies = rotary_frequencies(theta, size)
    if scaling is not None:
        frequencies = scaling.apply(frequencies)
    return torch.outer(torch.arange(max_seq_len, dtype=torch.float64), frequencies)


class RotaryPositionalEmbedding(Module):
    """Rotates the pairs of a query or key by its position; one instance serves all layers."""

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        theta: float,
        d_k: int,
        max_seq_len: int,
        device: torch.device | str | None = None,
        scaling: RotaryScaling | None = None,
    ) -> None:
        super().__init__()
        if d_k % 2:
            raise ConfigError(
                f"rotary size d_k is {d_k}", hint="it must be even: RoPE rotates pairs"
            )
        self.theta, self.d_k, self.max_seq_len = theta, d_k, max_seq_len
        self.scaling = scaling
        self._fill_tables(torch.device(device) if device else torch.get_default_device())

    def _fill_tables(self, device: torch.device) -> None:
        table = angles(self.theta, self.d_k, self.max_seq_len, self.scaling)
        self.register_buffer("cos", table.cos().to(device, torch.float32), persistent=False)
        self.register_buffer("sin", table.sin().to(device, torch.float32), persistent=False)

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "RotaryPositionalEmbedding":
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        # `model.to(bfloat16)` is meant for weights; rounded angles would blur far positions.
        if self.cos.dtype in (torch.bfloat16, torch.float16):
            self._fill_tables(self.cos.device)
        return self

    def forward(
        self,
        x: Float[Tensor, "... seq d_k"],
        token_positions: Int[Tensor, "... seq"] | None = None,
    ) -> Float[Tensor, "... seq d_k"]:
        """Rotate each pair (a, b) to (a cos - b sin, a sin + b cos)."""
        cos, sin = self.cos_sin(x.shape[-2], token_positions)
        a, b = x[..., 0::2], x[..., 1::2]
        rotated = torch.stack([a * cos - b * sin, a * sin + b * cos], dim=-1)
        return rotated.flatten(-2).to(x.dtype)

    def cos_sin(
        self, seq: int, token_positions: Int[Tensor, "*lead seq"] | None
    ) -> tuple[Float[Tensor, "*lead seq pair"], Float[Tensor, "*lead seq pair"]]:
        """cos and sin of the angles at these positions; None: 0..seq-1."""
        rows = slice(seq) if token_positions is None else token_positions
        return self.cos[rows], self.sin[rows]

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        return f"theta={self.theta}, d_k={self.d_k}, max_seq_len={self.max_seq_len}"
