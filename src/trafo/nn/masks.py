"""Attention masks: which keys each query may attend to. True = attend, everywhere in trafo.

A mask broadcasts against scores of shape (batch, heads, query, key).
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from trafo.nn.precision import Device


def padding_mask(ids: Int[Tensor, "batch seq"], padding_id: int) -> Bool[Tensor, "batch 1 1 seq"]:
    """Padding mask: no query attends to padding."""
    return (ids != padding_id)[:, None, None, :]


def length_mask(lengths: Int[Tensor, " batch"], seq: int) -> Bool[Tensor, "batch seq"]:
    """True for the first `lengths[i]` positions of row i: the real ones of a right-padded batch."""
    return torch.arange(seq, device=lengths.device) < lengths[:, None]


def look_ahead_mask(seq: int, device: Device = None) -> Bool[Tensor, "seq seq"]:
    """Causal mask: position i attends to positions 0..i."""
    return torch.ones(seq, seq, dtype=torch.bool, device=device).tril()


def target_mask(ids: Int[Tensor, "batch seq"], padding_id: int) -> Bool[Tensor, "batch 1 seq seq"]:
    """Causal mask and padding mask together."""
    return padding_mask(ids, padding_id) & look_ahead_mask(ids.shape[1], ids.device)


def window_mask(
    queries: Int[Tensor, "*lead query"],
    keys: Int[Tensor, "*#lead key"],
    window: int | None,
    *,
    causal: bool,
) -> Bool[Tensor, "*lead query key"]:
    """Sliding-window mask: a key is seen if nearer than `window` and, if causal, not ahead.

    A causal window of w is the query itself and the w - 1 positions before it.
    """
    distance = queries[..., :, None] - keys[..., None, :]
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return seen if window is None else seen & (distance.abs() < window)
