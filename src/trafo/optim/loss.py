"""Logits -> cross-entropy loss: how surprised the model is by the next token.

loss = -log softmax(x)_t = log sum_j exp(x_j) - x_t. The largest logit is first subtracted from all,
which changes nothing (it cancels), so that exp cannot overflow and no digits are lost.

Label smoothing (Szegedy et al., 2016) spreads a share e of the target over all C classes:
log sum exp(x) - (1 - e) x_t - e mean(x).
"""

from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trafo.errors import require
from trafo.nn.precision import at_least_float32

Reduction = Literal["mean", "sum", "none"]


def cross_entropy(
    logits: Float[Tensor, "*lead vocab"],
    targets: Int[Tensor, "*lead"],
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Float[Tensor, ""] | Float[Tensor, "*lead"]:
    """Cross-entropy in nats, at least in float32, without the targets equal to `ignore_id`.

    The mean is over the targets that count, and 0 if there are none.
    """
    check_smoothing(label_smoothing)
    wide = at_least_float32(logits)
    counted = counted_targets(targets, ignore_id)
    chosen = targets.masked_fill(~counted, 0)
    shifted = wide - wide.amax(-1, keepdim=True).detach()
    right = shifted.gather(-1, chosen[..., None])[..., 0]
    losses = shifted.exp().sum(-1).log() - (1.0 - label_smoothing) * right
    if label_smoothing:
        losses = losses - label_smoothing * shifted.mean(-1)
    losses = torch.where(counted, losses, 0.0)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / counted.sum().clamp(min=1)


def counted_targets(targets: Int[Tensor, "*lead"], ignore_id: int | None) -> Bool[Tensor, "*lead"]:
    """Which targets count: all but those equal to `ignore_id`."""
    if ignore_id is None:
        return torch.ones_like(targets, dtype=torch.bool)
    return targets != ignore_id


def check_smoothing(label_smoothing: float) -> None:
    """Raise unless label smoothing is from 0 to 1."""
    fits = 0.0 <= label_smoothing <= 1.0
    require(fits, f"label_smoothing is {label_smoothing}", "choose from 0 to 1")
