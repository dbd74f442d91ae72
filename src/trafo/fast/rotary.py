"""Rotary positions as a complex product: (a + ib) (cos + i sin), one pass over memory, not six."""

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from trafo.nn import RotaryPositionalEmbedding
from trafo.nn.precision import at_least_float32


class FastRotaryPositionalEmbedding(RotaryPositionalEmbedding):
    """RoPE in complex arithmetic, except under a compiler, which fuses real arithmetic only."""

    def forward(
        self,
        x: Float[Tensor, "... seq d_k"],
        token_positions: Int[Tensor, "... seq"] | None = None,
    ) -> Float[Tensor, "... seq d_k"]:
        """As `RotaryPositionalEmbedding.forward`."""
        if torch.compiler.is_compiling():
            return super().forward(x, token_positions)
        pairs = rearrange(at_least_float32(x), "... (pair two) -> ... pair two", two=2)
        odd_strides = any(stride % 2 for stride in (*pairs.stride()[:-2], pairs.storage_offset()))
        if (
            pairs.stride(-1) != 1 or odd_strides
        ):  # a complex number is two neighbours, at even places
            pairs = pairs.contiguous()
        angles = torch.complex(*self.cos_sin(x.shape[-2], token_positions))
        rotated = torch.view_as_real(torch.view_as_complex(pairs) * angles)
        return rotated.flatten(-2).to(x.dtype)
