"""Attention by torch's fused kernel, which never stores the (query, key) weights.

They are most of the memory and, on long sequences, most of the time (Dao et al., 2022). Sentences
are so short that it is faster to store them. A window is cut into blocks: whatever a query may see
lies in its own block of keys or in the one before (or after, if not causal), so each block attends
to two (three) blocks: n w scores instead of n^2.
"""

import math

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as fused_attention

from trafo.fast.mixed import is_mixed
from trafo.nn.attention import HeadsAttention, Mask, Slots, share_heads
from trafo.nn.masks import window_mask

# Up to this many keys, training with stored weights is faster: 2 to 3 times with 17 keys.
SHORT = 64


class FusedAttention(HeadsAttention):
    """HeadsAttention by the fused kernel, without attention weights in memory."""

    def forward(
        self,
        q: Float[Tensor, "batch heads queries d_head"],
        k: Float[Tensor, "batch kv_heads keys d_head"],
        v: Float[Tensor, "batch kv_heads keys d_head"],
        mask: Mask = None,
        slots: Slots = None,
    ) -> Float[Tensor, "batch heads queries d_head"]:
        """As `HeadsAttention.forward`, in float32 even where other products are mixed."""
        if not is_mixed():
            return self._attend(q, k, v, mask, slots)
        with torch.autocast("cpu", enabled=False):  # the fused kernel is slow with bfloat16
            return self._attend(q, k, v, mask, slots)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask, slots: Slots) -> Tensor:
        # With dropout the kernel would draw for the whole batch at once, and keep the weights, too.
        if (self.dropout.training and self.dropout.p > 0) or self._is_short_training(k, slots):
            return self._with_weights(q, k, v, mask, slots)
        if slots is None and self.window is not None and self.window < q.shape[2]:
            return self._in_blocks(q, k, v, mask)
        causal = mask is None and self._is_plainly_causal(q, k, slots)
        sees_all = mask is None and self._sees_all(q, k, slots)
        out: Tensor = fused_attention(
            q,
            k,
            v,
            # Without a mask the kernel is faster.
            attn_mask=None if causal or sees_all else self.attention_mask(k, mask, slots),
            is_causal=causal,
            enable_gqa=q.shape[1] != k.shape[1],
        )
        return out

    def _with_weights(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, slots: Tensor | None
    ) -> Tensor:
        """The formula in fewer passes: what is hidden gets -inf added, in place, before softmax."""
        seen = self.attention_mask(k, mask, slots)
        if seen is not None and mask is not None and _hides_all_from_some(seen):
            return super().forward(q, k, v, mask, slots)  # softmax would give NaN there
        k, v = share_heads(k, q.shape[1]), share_heads(v, q.shape[1])
        scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(-1, -2)
        if seen is not None:
            scores += torch.zeros_like(seen, dtype=scores.dtype).masked_fill_(~seen, -math.inf)
        out: Tensor = self.dropout(scores.softmax(-1)) @ v
        return out

    def _is_short_training(self, k: Tensor, slots: Tensor | None) -> bool:
        """In training, so few keys that storing the weights pays."""
        if not torch.is_grad_enabled() or slots is not None:
            return False
        return k.shape[2] <= SHORT and self._window_reaches(k)

    def _is_plainly_causal(self, q: Tensor, k: Tensor, slots: Tensor | None) -> bool:
        """Queries and keys at the same places, and the window reaches back to the first."""
        if not self.causal or not self._window_reaches(k):
            return False
        return slots is None or (q.shape[2] == k.shape[2] and bool((slots[:, 0] == 0).all()))

    def _sees_all(self, q: Tensor, k: Tensor, slots: Tensor | None) -> bool:
        """One new token in each row, all keys before it."""
        if slots is None or q.shape[2] > 1 or not self._window_reaches(k):
            return False
        return bool((slots >= k.shape[2] - 1).all())

    def _window_reaches(self, k: Tensor) -> bool:
        return self.window is None or self.window >= k.shape[2]

    def _in_blocks(
        self,
        q: Float[Tensor, "batch heads seq d_head"],
        k: Float[Tensor, "batch kv_heads seq d_head"],
        v: Float[Tensor, "batch kv_heads seq d_head"],
        key_mask: Bool[Tensor, "#batch 1 1 seq"] | None,
    ) -> Float[Tensor, "batch heads seq d_head"]:
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
        )
        return rearrange(out, "(batch heads) seq d_head -> batch heads seq d_head", heads=heads)


def _hides_all_from_some(seen: Bool[Tensor, "..."]) -> bool:
    """Whether there is a query without keys, which nobody knows on the meta device."""
    return not seen.is_meta and not bool(seen.any(-1).all())


def windowed_attention(
    q: Float[Tensor, "*lead seq d_k"],
    k: Float[Tensor, "*lead seq d_k"],
    v: Float[Tensor, "*lead seq d_v"],
    window: int,
    *,
    causal: bool = True,
    key_mask: Bool[Tensor, "*#lead seq"] | None = None,
) -> Float[Tensor, "*lead seq d_v"]:
    """Each query attends to the keys nearer than `window`, itself among them, none ahead if causal.

    `key_mask` is False for padding.
    """
    seq = q.shape[-2]
    after = 0 if causal else window
    missing = -seq % window  # up to a whole number of blocks
    mask = _block_mask(seq, window, after, q.device)
    if key_mask is not None:
        mask = mask & _with_neighbours(key_mask[..., None], window, after, missing)[..., None, :, 0]
    blocks = rearrange(
        _pad(q, 0, missing), "... (blocks window) d -> ... blocks window d", window=window
    )
    keys = _with_neighbours(k, window, after, missing)
    values = _with_neighbours(v, window, after, missing)
    out = fused_attention(blocks, keys, values, attn_mask=mask)
    return out.flatten(-3, -2)[..., :seq, :]


def _block_mask(
    seq: int, window: int, after: int, device: torch.device
) -> Bool[Tensor, "blocks window span"]:
    """Near enough, not ahead if causal, and not before the beginning or past the end."""
    firsts = torch.arange(0, seq, window, device=device)[:, None]
    queries = firsts + torch.arange(window, device=device)
    keys = firsts + torch.arange(-window, window + after, device=device)
    real = (keys >= 0) & (keys < seq)
    return window_mask(queries, keys, window, causal=after == 0) & real[:, None, :]


def _with_neighbours(
    x: Tensor, window: int, after: int, missing: int
) -> Float[Tensor, "*lead blocks span d"] | Bool[Tensor, "*lead blocks span 1"]:
    """Each block of positions with the block before it and `after` positions after it."""
    padded = _pad(x, window, missing + after)
    return padded.unfold(-2, 2 * window + after, window).transpose(-1, -2)


def _pad(x: Tensor, before: int, after: int) -> Tensor:
    return torch.constant_pad_nd(x, (0, 0, before, after))
