"""Attention: softmax(Q K^T / sqrt(d_k)) V (Vaswani et al., 2017), from one head to many.

Each query gets a weighted mean of the values; the weights say how well the keys match the query.
Dividing by sqrt(d_k) keeps the variance of the scores near 1, where softmax has useful gradients.

Multi-head: head_h = attention(Wq_h x, Wk_h y, Wv_h y);  out = Wo [head_1; ...; head_n].
"""

import math

import torch
from einops import einsum, rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import Module

from trafo.errors import InputError, require, require_at_least
from trafo.nn.dropout import Dropout
from trafo.nn.kv_cache import LayerCache
from trafo.nn.linear import Linear
from trafo.nn.masks import window_mask
from trafo.nn.norm import RMSNorm
from trafo.nn.position import RotaryPositionalEmbedding
from trafo.nn.precision import Device, Dtype, at_least_float32

Heads = Float[Tensor, "batch heads seq d_head"]
Mask = Bool[Tensor, "#batch #heads #queries #keys"] | None
Slots = Int[Tensor, "batch queries"] | None


def scaled_dot_product_attention(
    q: Float[Tensor, "*#lead queries d_k"],
    k: Float[Tensor, "*#lead keys d_k"],
    v: Float[Tensor, "*#lead keys d_v"],
    mask: Bool[Tensor, "*#lead #queries #keys"] | None = None,
    dropout: Dropout | None = None,
) -> Float[Tensor, "*lead queries d_v"]:
    """The formula for any leading dimensions, where True in `mask` means attend."""
    weights = attention_weights(q, k, mask)
    return weighted_mean(weights if dropout is None else dropout(weights), v)


def attention_weights(
    q: Float[Tensor, "*#lead queries d_k"],
    k: Float[Tensor, "*#lead keys d_k"],
    mask: Bool[Tensor, "*#lead #queries #keys"] | None = None,
) -> Float[Tensor, "*lead queries keys"]:
    """Softmax of the scaled scores: rows sum to 1, or to 0 where the mask hides every key."""
    scores = einsum(q, k, "... queries d, ... keys d -> ... queries keys") / math.sqrt(q.shape[-1])
    return softmax(scores, dim=-1) if mask is None else masked_softmax(scores, mask)


def softmax(x: Float[Tensor, "*shape"], dim: int) -> Float[Tensor, "*shape"]:
    """exp(x_i) / sum_j exp(x_j): positive, with the sum 1 along `dim`, computed in float32.

    Subtracting the maximum changes nothing (it cancels) and keeps exp from overflowing.
    """
    wide = at_least_float32(x)
    powers = (wide - wide.amax(dim, keepdim=True).detach()).exp()
    return (powers / powers.sum(dim, keepdim=True)).to(x.dtype)


def masked_softmax(
    scores: Float[Tensor, "*shape"], mask: Bool[Tensor, "..."]
) -> Float[Tensor, "*shape"]:
    """softmax over the last dimension where `mask` is True, and zeros where it is not.

    Masked scores become the lowest finite number, not -inf: an empty row would be inf - inf.
    Their weights then underflow to exactly 0, save in an empty row, which the second fill clears.
    """
    lowest = torch.finfo(scores.dtype).min
    return softmax(scores.masked_fill(~mask, lowest), dim=-1).masked_fill(~mask, 0.0)


def weighted_mean(
    weights: Float[Tensor, "*#lead queries keys"], values: Float[Tensor, "*#lead keys d_v"]
) -> Float[Tensor, "*lead queries d_v"]:
    """Weighted mean of the values, for each query."""
    return einsum(weights, values, "... queries keys, ... keys d -> ... queries d")


class HeadsAttention(Module):
    """Scaled dot-product attention of all heads, over projected queries, keys and values.

    `causal`: no query sees a later key; `window`: sliding-window attention. Grouped-query attention
    (Ainslie et al., 2023): each key/value head serves a group of adjacent query heads.
    """

    def __init__(
        self, *, causal: bool = False, window: int | None = None, dropout: float = 0.0
    ) -> None:
        super().__init__()
        require_at_least(1, window=window)
        self.causal = causal
        self.window = window
        self.dropout = Dropout(dropout)

    def forward(
        self,
        q: Float[Tensor, "batch heads queries d_head"],
        k: Float[Tensor, "batch kv_heads keys d_head"],
        v: Float[Tensor, "batch kv_heads keys d_head"],
        mask: Mask = None,
        slots: Slots = None,
    ) -> Float[Tensor, "batch heads queries d_head"]:
        """`slots` are the positions of the queries among the keys, or None if they are the same."""
        k, v = share_heads(k, q.shape[1]), share_heads(v, q.shape[1])
        return scaled_dot_product_attention(
            q, k, v, self.attention_mask(k, mask, slots), self.dropout
        )

    def attention_mask(
        self, k: Float[Tensor, "batch any_heads keys d_head"], mask: Mask, slots: Slots
    ) -> Bool[Tensor, "..."] | None:
        """Which keys each query sees: `mask`, causal mask and window combined."""
        if not self.causal and self.window is None:
            return mask
        keys = torch.arange(k.shape[2], device=k.device)
        queries = keys if slots is None else slots[:, None]
        near = window_mask(queries, keys, self.window, causal=self.causal)
        return near if mask is None else near & mask

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        return f"causal={self.causal}, window={self.window}"


class MultiHeadSelfAttention(Module):
    """Self-attention: causal in a language model, `causal=False` in an encoder.

    Optional: RoPE, grouped-query attention, RMSNorm on queries and keys (Henry et al., 2020),
    sliding window, KV cache.
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        *,
        rope: RotaryPositionalEmbedding | None = None,
        num_kv_heads: int | None = None,
        head_size: int | None = None,
        causal: bool = True,
        window: int | None = None,
        qk_norm: bool = False,
        norm_eps: float = 1e-5,
        bias: bool = False,
        qkv_bias: bool = False,
        dropout: float = 0.0,
        device: Device = None,
        dtype: Dtype = None,
    ) -> None:
        super().__init__()
        check_heads(d_model, num_heads, num_kv_heads, head_size)
        self.num_heads = num_heads
        self.num_kv_heads = num_kv_heads or num_heads
        self.d_head = head_size or d_model // num_heads
        d_q, d_kv = num_heads * self.d_head, self.num_kv_heads * self.d_head
        self.q_proj = Linear(d_model, d_q, device, dtype, bias=bias or qkv_bias)
        self.k_proj = Linear(d_model, d_kv, device, dtype, bias=bias or qkv_bias)
        self.v_proj = Linear(d_model, d_kv, device, dtype, bias=bias or qkv_bias)
        self.output_proj = Linear(d_q, d_model, device, dtype, bias=bias)
        self.attention = HeadsAttention(causal=causal, window=window, dropout=dropout)
        self.rope = rope
        self.q_norm = RMSNorm(self.d_head, norm_eps, device, dtype) if qk_norm else None
        self.k_norm = RMSNorm(self.d_head, norm_eps, device, dtype) if qk_norm else None

    def forward(
        self,
        x: Float[Tensor, "batch seq d_model"],
        token_positions: Int[Tensor, "#batch seq"] | None = None,
        *,
        key_mask: Bool[Tensor, "#batch 1 1 keys"] | None = None,
        cache: LayerCache | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Attend with positions 0..seq-1 by default and a `key_mask` that is False for padding.

        With a cache the keys are all that it holds after this step, and `key_mask` is over these.
        """
        k = split_heads(self.k_proj(x), self.num_kv_heads)
        v = split_heads(self.v_proj(x), self.num_kv_heads)
        q = split_heads(self.q_proj(x), self.num_heads)
        k = self._norm_and_rotate(k, self.k_norm, token_positions)
        q = self._norm_and_rotate(q, self.q_norm, token_positions)
        slots = None
        if cache is not None:
            if not self.attention.causal:
                raise InputError(
                    "bidirectional attention cannot use a KV cache",
                    hint="earlier tokens would have to see later ones; give the whole sequence",
                )
            k, v, slots = cache.extend(k, v, key_mask)
        out: Tensor = self.output_proj(merge_heads(self.attention(q, k, v, key_mask, slots)))
        return out

    def _norm_and_rotate(
        self, heads: Heads, norm: RMSNorm | None, positions: Int[Tensor, "#batch seq"] | None
    ) -> Heads:
        """Normalize, then rotate by position (RoPE), every head alike."""
        if norm is not None:
            heads = norm(heads)
        if self.rope is not None:
            heads = self.rope(heads, None if positions is None else positions[:, None])
        return heads


def split_heads(x: Float[Tensor, "batch seq d"], num_heads: int) -> Heads:
    """Split the features of each position into heads."""
    return rearrange(x, "batch seq (heads d_head) -> batch heads seq d_head", heads=num_heads)


def merge_heads(heads: Heads) -> Float[Tensor, "batch seq d_model"]:
    """Concatenate the heads of each position."""
    return rearrange(heads, "batch heads seq d_head -> batch seq (heads d_head)")


def share_heads(
    x: Float[Tensor, "batch kv_heads keys d_head"], num_heads: int
) -> Float[Tensor, "batch heads keys d_head"]:
    """Repeat each key/value head for the group of neighbouring query heads that share it."""
    if x.shape[1] == num_heads:
        return x
    return torch.repeat_interleave(x, num_heads // x.shape[1], dim=1)


def check_heads(
    d_model: int, num_heads: int, num_kv_heads: int | None, head_size: int | None = None
) -> None:
    """d_model is divisible by the heads, unless head_size is given, and they by key/value heads."""
    require(
        num_heads > 0 and (head_size is not None or d_model % num_heads == 0),
        f"d_model {d_model} is not divisible by num_heads {num_heads}",
        "every head takes an equal part of d_model, or give a head_size",
    )
    require(
        num_kv_heads is None or (num_kv_heads > 0 and num_heads % num_kv_heads == 0),
        f"num_kv_heads {num_kv_heads} does not divide num_heads {num_heads}",
        "each key/value head serves the same number of query heads",
    )
