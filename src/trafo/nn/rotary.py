"""RoPE (Su et al., 2021): attention alone sees a set, rotary positions add the order.

The pair (x_2k, x_2k+1) at position i is rotated by the angle i theta^(-2k/d). A query at i and a
key at j then meet at the angle of i - j: only distance counts.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module

from trafo.errors import require
from trafo.nn.precision import Device
from trafo.nn.rotary_scaling import RotaryScaling


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
        """cos and sin of the angles at these positions; None: 0..seq-1."""
        rows = slice(seq) if token_positions is None else token_positions
        return self.cos[rows], self.sin[rows]

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        return f"theta={self.theta}, d_k={self.d_k}, max_seq_len={self.max_seq_len}"
