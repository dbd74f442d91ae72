"""Attention between two sequences: queries from one, keys and values from the other.

With one head, as in the step from additive attention, and with many, as between the decoder and
the encoder of Vaswani et al. (2017). A sequence that attends to itself is in `attention.py`.
"""

from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import Module

from trafo.nn.attention import (
    Heads,
    HeadsAttention,
    Mask,
    check_heads,
    merge_heads,
    scaled_dot_product_attention,
    split_heads,
)
from trafo.nn.linear import Linear
from trafo.nn.precision import Device, Dtype


class SingleHeadAttention(Module):
    """Single-head attention(Wq x, Wk y, Wv y) with any d_k and d_v."""

    def __init__(
        self,
        d_model: int,
        d_k: int | None = None,
        d_v: int | None = None,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        super().__init__()
        self.q_proj = Linear(d_model, d_k or d_model, device, dtype)
        self.k_proj = Linear(d_model, d_k or d_model, device, dtype)
        self.v_proj = Linear(d_model, d_v or d_model, device, dtype)

    def forward(
        self,
        query: Float[Tensor, "*lead queries d_model"],
        key: Float[Tensor, "*lead keys d_model"],
        value: Float[Tensor, "*lead keys d_model"],
        mask: Bool[Tensor, "*#lead #queries #keys"] | None = None,
    ) -> Float[Tensor, "*lead queries d_v"]:
        """Project and attend where `mask` is True."""
        q, k, v = self.q_proj(query), self.k_proj(key), self.v_proj(value)
        return scaled_dot_product_attention(q, k, v, mask)


class MultiHeadAttention(Module):
    """Cross-attention: queries from one sequence, keys and values from another."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        bias: bool = False,
        dropout: float = 0.0,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        super().__init__()
        check_heads(d_model, num_heads, None)
        self.num_heads = num_heads
        self.q_proj = Linear(d_model, d_model, device, dtype, bias=bias)
        self.k_proj = Linear(d_model, d_model, device, dtype, bias=bias)
        self.v_proj = Linear(d_model, d_model, device, dtype, bias=bias)
        self.output_proj = Linear(d_model, d_model, device, dtype, bias=bias)
        self.attention = HeadsAttention(dropout=dropout)

    def forward(
        self,
        query: Float[Tensor, "batch queries d_model"],
        key: Float[Tensor, "batch keys d_model"],
        value: Float[Tensor, "batch keys d_model"],
        mask: Mask = None,
    ) -> Float[Tensor, "batch queries d_model"]:
        """Project, attend with all heads where `mask` is True, and merge them."""
        return self.attend(query, *self.keys_values(key, value), mask)

    def keys_values(
        self,
        key: Float[Tensor, "batch keys d_model"],
        value: Float[Tensor, "batch keys d_model"],
    ) -> tuple[Heads, Heads]:
        """Projected keys and values: a decoder computes them once per source."""
        k, v = self.k_proj(key), self.v_proj(value)
        return split_heads(k, self.num_heads), split_heads(v, self.num_heads)

    def attend(
        self,
        query: Float[Tensor, "batch queries d_model"],
        k: Float[Tensor, "batch heads keys d_head"],
        v: Float[Tensor, "batch heads keys d_head"],
        mask: Mask = None,
    ) -> Float[Tensor, "batch queries d_model"]:
        """Attention of queries to projected keys and values."""
        q = split_heads(self.q_proj(query), self.num_heads)
        out: Tensor = self.output_proj(merge_heads(self.attention(q, k, v, mask)))
        return out
