"""Multi-head self-attention as a language model uses it: a sequence looks at its own past.

Beyond `multi_head.py`: causal unless told otherwise, optional rotary positions, optional fewer
key/value heads, optional norms on queries and keys (Henry et al., 2020), optional window, optional
KV cache.
"""

from collections.abc import Callable
from functools import partial

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trafo.nn.attention import Kernel, attention, share_heads
from trafo.nn.kv_cache import LayerCache
from trafo.nn.masks import window_mask
from trafo.nn.multi_head import Heads, MultiHeadAttention
from trafo.nn.norm import RMSNorm
from trafo.nn.position import RotaryPositionalEmbedding
from trafo.nn.windowed import windowed_attention


class MultiHeadSelfAttention(MultiHeadAttention):
    """Causal multi-head self-attention; `causal=False` is an encoder's."""

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
        kernel: Kernel = "readable",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(
            d_model,
            num_heads,
            num_kv_heads=num_kv_heads,
            head_size=head_size,
            bias=bias,
            qkv_bias=qkv_bias,
            dropout=dropout,
            kernel=kernel,
            device=device,
            dtype=dtype,
        )
        self.rope = rope
        self.causal = causal
        self.window = window
        self.q_norm = RMSNorm(self.d_head, norm_eps, device, dtype) if qk_norm else None
        self.k_norm = RMSNorm(self.d_head, norm_eps, device, dtype) if qk_norm else None

    def forward(  # type: ignore[override]  # one sequence instead of three
        self,
        x: Float[Tensor, "batch seq d_model"],
        token_positions: Int[Tensor, "#batch seq"] | None = None,
        *,
        key_mask: Bool[Tensor, "#batch 1 1 seq"] | None = None,
        cache: LayerCache | None = None,
        weights_out: list[Tensor] | None = None,
    ) -> Float[Tensor, "batch seq d_model"]:
        """Positions default to 0..seq-1; `key_mask` is False for padding, see `padding_mask`."""
        k, v = self.keys_values(x, x)
        k = self._place(k, self.k_norm, token_positions)
        q = self._place(self._split_heads(self.q_proj(x)), self.q_norm, token_positions)
        attend = partial(
            attention, dropout=self.dropout, kernel=self.kernel, weights_out=weights_out
        )
        if cache is not None:
            k, v = cache.store(k, v)
            heads = attend(q, k, v, mask=cache.step.mask, causal=cache.step.causal)
        elif self.window is None or self.window >= x.shape[1]:
            heads = attend(q, k, v, mask=key_mask, causal=self.causal)
        elif weights_out is not None:  # all weights are asked for, so all are computed
            heads = attend(q, k, v, mask=self._full_window_mask(x, key_mask))
        else:
            heads = self._windowed(q, k, v, key_mask, attend)
        return self._merge_heads(heads)

    def _place(
        self, heads: Heads, norm: RMSNorm | None, positions: Int[Tensor, "#batch seq"] | None
    ) -> Heads:
        """Norm, then turn by the position: the same rotation for every head."""
        if norm is not None:
            heads = norm(heads)
        if self.rope is not None:
            heads = self.rope(heads, None if positions is None else positions[:, None])
        return heads

    def _full_window_mask(
        self, x: Float[Tensor, "batch seq d_model"], key_mask: Tensor | None
    ) -> Bool[Tensor, "#batch 1 seq seq"]:
        positions = torch.arange(x.shape[1], device=x.device)
        mask = window_mask(positions, positions, self.window, causal=self.causal)[None, None]
        return mask if key_mask is None else mask & key_mask

    def _windowed(
        self,
        q: Heads,
        k: Float[Tensor, "batch kv_heads seq d_head"],
        v: Float[Tensor, "batch kv_heads seq d_head"],
        key_mask: Bool[Tensor, "#batch 1 1 seq"] | None,
        attend: Callable[..., Tensor],
    ) -> Heads:
        """Blocks take the place of heads, (batch heads) that of the batch: a kernel sees 4 dims."""
        assert self.window is not None
        batch, heads = q.shape[:2]
        k, v = share_heads(k, heads), share_heads(v, heads)
        if key_mask is not None:
            key_mask = key_mask[:, :, 0].expand(batch, heads, -1).flatten(0, 1)
        out = windowed_attention(
            q.flatten(0, 1),
            k.flatten(0, 1),
            v.flatten(0, 1),
            self.window,
            causal=self.causal,
            key_mask=key_mask,
            attend=attend,
        )
        return rearrange(out, "(batch heads) seq d_head -> batch heads seq d_head", heads=heads)
