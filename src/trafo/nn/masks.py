"""Masks: who may look at whom. True = attend, everywhere in trafo.

A mask is compared with scores of shape (batch, heads, query, key) and broadcasts against them.
"""

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def padding_mask(ids: Int[Tensor, "batch seq"], padding_id: int) -> Bool[Tensor, "batch 1 1 seq"]:
    """Nobody attends to padding."""
    return (ids != padding_id)[:, None, None, :]


def length_mask(lengths: Int[Tensor, " batch"], seq: int) -> Bool[Tensor, "batch seq"]:
    """True for the first `lengths[i]` positions of row i: the real ones of a right-padded batch."""
    return torch.arange(seq, device=lengths.device) < lengths[:, None]


def look_ahead_mask(seq: int, device: torch.device | str | None = None) -> Bool[Tensor, "seq seq"]:
    """Position i attends to positions 0..i: nobody sees the future."""
    return torch.ones(seq, seq, dtype=torch.bool, device=device).tril()


def target_mask(ids: Int[Tensor, "batch seq"], padding_id: int) -> Bool[Tensor, "batch 1 seq seq"]:
    """Neither padding nor the future."""
    return padding_mask(ids, padding_id) & look_ahead_mask(ids.shape[1], ids.device)


def window_mask(
    queries: Int[Tensor, "*lead query"],
    keys: Int[Tensor, "*#lead key"],
    window: int | None,
    *,
    causal: bool,
) -> Bool[Tensor, "*lead query key"]:
    """From positions: a key is seen if it is nearer than `window` and, if causal, not ahead.

    A causal window of w is the query itself and the w - 1 positions before it.
    """
    distance = queries[..., :, None] - keys[..., None, :]
    seen = distance >= 0 if causal else torch.ones_like(distance, dtype=torch.bool)
    return seen if window is None else seen & (distance.abs() < window)
