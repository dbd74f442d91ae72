"""Restricted self-attention: each position sees only its neighbourhood, at a cost linear in length.

The sequence is cut into blocks as long as the window. Whatever a query may see lies in its own
block or in the one before (or after, if not causal), so each block attends to two (three) blocks
of keys: n w instead of n^2 scores, equal to full attention under the same mask.
"""

from collections.abc import Callable

import torch
from einops import rearrange
from jaxtyping import Bool, Float
from torch import Tensor

from trafo.errors import ConfigError
from trafo.nn.dot_product import scaled_dot_product_attention
from trafo.nn.masks import window_mask


def windowed_attention(
    q: Float[Tensor, "*lead seq d_k"],
    k: Float[Tensor, "*lead seq d_k"],
    v: Float[Tensor, "*lead seq d_v"],
    window: int,
    *,
    causal: bool = True,
    key_mask: Bool[Tensor, "*#lead seq"] | None = None,
    attend: Callable[..., Tensor] = scaled_dot_product_attention,
) -> Float[Tensor, "*lead seq d_v"]:
    """Each query attends to the keys nearer than `window`, itself among them, none ahead if causal.

    `key_mask` is False for padding; `attend(q, k, v, mask=...)` is the attention inside a block.
    """
    if window < 1:
        raise ConfigError(f"the attention window is {window}", hint="it counts tokens, at least 1")
    seq = q.shape[-2]
    after = 0 if causal else window
    missing = -seq % window  # up to a whole number of blocks
    mask = _block_mask(seq, window, after, q.device)
    if key_mask is not None:
        mask = mask & _with_neighbours(key_mask[..., None], window, after, missing)[..., None, :, 0]
    out = attend(
        rearrange(
            _pad(q, 0, missing), "... (blocks window) d -> ... blocks window d", window=window
        ),
        _with_neighbours(k, window, after, missing),
        _with_neighbours(v, window, after, missing),
        mask=mask,
    )
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
    """Each block of positions together with the block before it and the `after` ones behind."""
    padded = _pad(x, window, missing + after)
    return padded.unfold(-2, 2 * window + after, window).transpose(-1, -2)


def _pad(x: Tensor, before: int, after: int) -> Tensor:
    return torch.constant_pad_nd(x, (0, 0, before, after))
