"""Logits -> cross-entropy loss: how surprised the model is by the next token.

loss = -log softmax(x)_t = log sum_j exp(x_j) - x_t. The largest logit is first subtracted from all,
which changes nothing (it cancels), so that exp cannot overflow and no digits are lost.

Label smoothing (Szegedy et al., 2016) spreads a share e of the target over all C classes:
log sum exp(x) - (1 - e) x_t - e mean(x).
"""

import math
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from trafo.errors import ConfigError, InputError

Reduction = Literal["mean", "sum", "none"]


def cross_entropy(
    logits: Float[Tensor, "*lead vocab"],
    targets: Int[Tensor, "*lead"],
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Float[Tensor, ""] | Float[Tensor, "*lead"]:
    """Cross-entropy in nats, in float32 at least; targets equal to `ignore_id` do not count.

    The mean is over the targets that count, and 0 if there are none.
    """
    check_smoothing(label_smoothing)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
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


def perplexity(loss: float) -> float:
    """Perplexity, exp(loss): as uncertain as a choice between that many equally likely tokens."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_byte(total_loss: float, num_bytes: int) -> float:
    """Bits per byte: the summed loss in nats over a text of `num_bytes` bytes, in bits.

    Comparable across tokenizers: a sum does not depend on the number of tokens.
    """
    if num_bytes < 1:
        raise InputError(f"the text has {num_bytes} bytes", hint="bits per byte need at least one")
    return total_loss / (math.log(2.0) * num_bytes)


def counted_targets(targets: Int[Tensor, "*lead"], ignore_id: int | None) -> Bool[Tensor, "*lead"]:
    """Which targets count: all but those equal to `ignore_id`."""
    if ignore_id is None:
        return torch.ones_like(targets, dtype=torch.bool)
    return targets != ignore_id


def check_smoothing(label_smoothing: float) -> None:
    """Raise unless label smoothing is from 0 to 1."""
    if not 0.0 <= label_smoothing <= 1.0:
        raise ConfigError(f"label_smoothing is {label_smoothing}", hint="choose from 0 to 1")
