"""Positions: attention alone sees a set, these add the order.

RoPE (Su et al., 2021) rotates the pair (x_2k, x_2k+1) at position i by the angle i theta^(-2k/d). A
query at i and a key at j then meet at the angle of i - j: only distance counts. Scaling slows the
rotation, for contexts longer than those of the training.

Before RoPE, positions were added to the embeddings:
sinusoidal (Vaswani et al., 2017): PE(i, 2k) = sin(i / 10000^(2k/d)), PE(i, 2k+1) = cos(same)
learned (GPT-2): one trained vector for each position
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module, Parameter

from trafo.errors import require
from trafo.nn.linear import truncated_normal_
from trafo.nn.precision import Device, Dtype


class SinusoidalPositions(Module):
    """Adds sinusoids of geometrically growing wavelength to the embeddings, without parameters."""

    table: Tensor

    def __init__(self, d_model: int, max_seq_len: int, device: Device = None) -> None:
        super().__init__()
        waves = angles(10_000.0, d_model, max_seq_len)
        interleaved = torch.stack([waves.sin(), waves.cos()], dim=-1).flatten(-2)[:, :d_model]
        self.register_buffer("table", interleaved.to(device, torch.float32), persistent=False)

    def forward(
        self,
        x: Float[Tensor, "... seq d_model"],
        token_positions: Int[Tensor, "... seq"] | None = None,
    ) -> Float[Tensor, "... seq d_model"]:
        """Add the sinusoids of these positions, by default 0..seq-1."""
        rows = self.table[: x.shape[-2]] if token_positions is None else self.table[token_positions]
        return x + rows.to(x.dtype)


class LearnedPositions(Module):
    """Adds a trained vector for each position to the embeddings."""

    def __init__(
        self, d_model: int, max_seq_len: int, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        table = torch.empty(max_seq_len, d_model, device=device, dtype=dtype)
        self.weight = Parameter(truncated_normal_(table, std=0.02))

    def forward(
        self,
        x: Float[Tensor, "... seq d_model"],
        token_positions: Int[Tensor, "... seq"] | None = None,
    ) -> Float[Tensor, "... seq d_model"]:
        """Add the vectors of these positions, by default 0..seq-1."""
        rows = (
            self.weight[: x.shape[-2]] if token_positions is None else self.weight[token_positions]
        )
        return x + rows


@dataclass(frozen=True, kw_only=True)
class RotaryScaling:
    """How the frequencies change.

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
    """Rotates the pairs of a query or key by its position, for all layers at once."""

    cos: Tensor
    sin: Tensor

    def __init__(
        self,
        theta: float,
        d_k: int,
        max_seq_len: int,
        device: Device = None,
        scaling: RotaryScaling | None = None,
    ) -> None:
        super().__init__()
        require(d_k % 2 == 0, f"rotary size d_k is {d_k}", "it must be even: RoPE rotates pairs")
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
        """cos and sin of the angles at these positions, by default 0..seq-1."""
        rows = slice(seq) if token_positions is None else token_positions
        return self.cos[rows], self.sin[rows]

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        return f"theta={self.theta}, d_k={self.d_k}, max_seq_len={self.max_seq_len}"
