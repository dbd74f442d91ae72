"""How a layer attends: the formula, or torch's fused kernel that never stores the weights.

`kernel="readable"` is `dot_product.py`, the truth. `kernel="fused"` gives the same numbers and
gradients (tests hold it to that) without writing the (query, key) weights to memory, which is
most of the memory and, on long sequences, most of the time (Dao et al., 2022).
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as fused_attention

from trafo.nn.dot_product import attention_weights, weighted_mean
from trafo.nn.dropout import Dropout
from trafo.nn.masks import look_ahead_mask

Kernel = Literal["readable", "fused"]


def attention(
    q: Float[Tensor, "*lead heads queries d_head"],
    k: Float[Tensor, "*lead kv_heads keys d_head"],
    v: Float[Tensor, "*lead kv_heads keys d_head"],
    *,
    mask: Bool[Tensor, "*#lead #heads #queries #keys"] | None = None,
    causal: bool = False,
    dropout: Dropout | None = None,
    kernel: Kernel = "readable",
    weights_out: list[Tensor] | None = None,
) -> Float[Tensor, "*lead heads queries d_head"]:
    """Attention of all heads, over projected queries, keys and values.

    Each key/value head serves a group of query heads (Ainslie et al., 2023). `causal` is for
    queries and keys at the same positions. A list given as `weights_out` receives the weights,
    (..., heads, queries, keys), which only the readable path knows.
    """
    if causal and mask is not None:
        mask, causal = mask & look_ahead_mask(k.shape[-2], k.device), False
    if kernel == "readable" or weights_out is not None:
        return _readable(q, k, v, mask, causal, dropout, weights_out)
    return _fused(q, k, v, mask, causal, dropout)


def _readable(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    causal: bool,
    dropout: Dropout | None,
    weights_out: list[Tensor] | None,
) -> Tensor:
    k, v = share_heads(k, q.shape[-3]), share_heads(v, q.shape[-3])
    weights = attention_weights(q, k, look_ahead_mask(k.shape[-2], k.device) if causal else mask)
    if weights_out is not None:
        weights_out.append(weights)
    return weighted_mean(dropout(weights) if dropout else weights, v)


def _fused(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, dropout: Dropout | None
) -> Tensor:
    out: Tensor = fused_attention(
        q,
        k,
        v,
        attn_mask=mask,
        is_causal=causal,
        dropout_p=dropout.p if dropout and dropout.training else 0.0,
        enable_gqa=q.shape[-3] != k.shape[-3],
    )
    return out


def share_heads(
    x: Float[Tensor, "*lead kv_heads keys d_head"], num_heads: int
) -> Float[Tensor, "*lead heads keys d_head"]:
    """Repeat each key/value head for the group of neighbouring query heads that it serves."""
    if x.shape[-3] == num_heads:
        return x
    return torch.repeat_interleave(x, num_heads // x.shape[-3], dim=-3)
