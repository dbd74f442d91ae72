"""Positions that are added to the embeddings, as in the models before RoPE (`rotary.py`).

Sinusoidal (Vaswani et al., 2017): PE(i, 2k) = sin(i / 10000^(2k/d)), PE(i, 2k+1) = cos(same).
Learned (GPT-2): one trained vector for each position.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module, Parameter

from trafo.nn.linear import truncated_normal_
from trafo.nn.precision import Device, Dtype
from trafo.nn.rotary import angles


class SinusoidalPositions(Module):
    """Adds sinusoids of geometrically growing wavelength to the embeddings; no parameters."""

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
        """Add the sinusoids of these positions; None: 0..seq-1."""
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
        """Add the vectors of these positions; None: 0..seq-1."""
        rows = (
            self.weight[: x.shape[-2]] if token_positions is None else self.weight[token_positions]
        )
        return x + rows
