"""Multi-head attention: several small attentions side by side, each with its own projections.

head_h = attention(Wq_h x, Wk_h y, Wv_h y);  out = Wo [head_1; ...; head_n]  (Vaswani et al., 2017)
"""

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn import Module

from trafo.errors import ConfigError
from trafo.nn.attention import Kernel, attention
from trafo.nn.dropout import Dropout
from trafo.nn.linear import Linear

Heads = Float[Tensor, "batch heads seq d_head"]


class MultiHeadAttention(Module):
    """Queries from one sequence, keys and values from another: attention across sequences."""

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        num_kv_heads: int | None = None,
        head_size: int | None = None,
        bias: bool = False,
        qkv_bias: bool = False,
        dropout: float = 0.0,
        kernel: Kernel = "readable",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        check_heads(d_model, num_heads, num_kv_heads, head_size)
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        self.d_head = head_size or d_model // num_heads
        self.kernel: Kernel = kernel
        d_q, d_kv = num_heads * self.d_head, self.num_kv_heads * self.d_head
        self.q_proj = Linear(d_model, d_q, device, dtype, bias=bias or qkv_bias)
        self.k_proj = Linear(d_model, d_kv, device, dtype, bias=bias or qkv_bias)
        self.v_proj = Linear(d_model, d_kv, device, dtype, bias=bias or qkv_bias)
        self.output_proj = Linear(d_q, d_model, device, dtype, bias=bias)
        self.dropout = Dropout(dropout)

    def forward(
        self,
        query: Float[Tensor, "batch queries d_model"],
        key: Float[Tensor, "batch keys d_model"],
        value: Float[Tensor, "batch keys d_model"],
        mask: Bool[Tensor, "#batch #heads #queries #keys"] | None = None,
        *,
        weights_out: list[Tensor] | None = None,
    ) -> Float[Tensor, "batch queries d_model"]:
        return self.attend(query, *self.keys_values(key, value), mask, weights_out=weights_out)

    def keys_values(
        self,
        key: Float[Tensor, "batch keys d_model"],
        value: Float[Tensor, "batch keys d_model"],
    ) -> tuple[
        Float[Tensor, "batch kv_heads keys d_head"], Float[Tensor, "batch kv_heads keys d_head"]
    ]:
        """The half that depends on the attended sequence alone: a decoder computes it once."""
        return self._split_heads(self.k_proj(key)), self._split_heads(self.v_proj(value))

    def attend(
        self,
        query: Float[Tensor, "batch queries d_model"],
        k: Float[Tensor, "batch kv_heads keys d_head"],
        v: Float[Tensor, "batch kv_heads keys d_head"],
        mask: Bool[Tensor, "#batch #heads #queries #keys"] | None = None,
        *,
        weights_out: list[Tensor] | None = None,
    ) -> Float[Tensor, "batch queries d_model"]:
        """The other half, for each new query."""
        q = self._split_heads(self.q_proj(query))
        heads = attention(
            q,
            k,
            v,
            mask=mask,
            dropout=self.dropout,
            kernel=self.kernel,
            weights_out=weights_out,
        )
        return self._merge_heads(heads)

    def _split_heads(self, x: Float[Tensor, "batch seq d"]) -> Heads:
        return rearrange(
            x, "batch seq (heads d_head) -> batch heads seq d_head", d_head=self.d_head
        )

    def _merge_heads(self, heads: Heads) -> Float[Tensor, "batch seq d_model"]:
        merged = rearrange(heads, "batch heads seq d_head -> batch seq (heads d_head)")
        out: Tensor = self.output_proj(merged)
        return out


def check_heads(
    d_model: int, num_heads: int, num_kv_heads: int | None, head_size: int | None = None
) -> None:
    """d_model splits evenly over the heads, unless they have a size of their own, and the heads
    over the key/value heads.
    """
    if num_heads < 1 or (head_size is None and d_model % num_heads):
        raise ConfigError(
            f"d_model {d_model} is not divisible by num_heads {num_heads}",
            hint="every head takes an equal part of d_model, or give a head_size",
        )
    if num_kv_heads is not None and (num_kv_heads < 1 or num_heads % num_kv_heads):
        raise ConfigError(
            f"num_kv_heads {num_kv_heads} does not divide num_heads {num_heads}",
            hint="each key/value head serves the same number of query heads",
        )
