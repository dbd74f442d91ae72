"""Learning rate schedules: the learning rate as a function of the step t = 0, 1, 2, ..."""

from __future__ import annotations

import math

from trafo.errors import require, require_at_least


def constant(t: int, lr: float) -> float:
    """Constant learning rate."""
    return lr


def warmup_cosine(
    t: int, max_lr: float, min_lr: float, warmup_steps: int, cosine_steps: int
) -> float:
    """Linear warm-up to max_lr at `warmup_steps`, cosine decay to min_lr at `cosine_steps`."""
    require(
        0 <= warmup_steps <= cosine_steps,
        f"warmup_steps is {warmup_steps!r}",
        "it must be 0 to cosine_steps",
    )
    if t < warmup_steps:
        return max_lr * t / warmup_steps
    if t >= cosine_steps:
        return min_lr
    share = (t - warmup_steps) / (cosine_steps - warmup_steps)
    return min_lr + 0.5 * (1 + math.cos(math.pi * share)) * (max_lr - min_lr)


def inverse_square_root(t: int, d_model: int, warmup_steps: int, scale: float = 1.0) -> float:
    """Vaswani et al. (2017): d_model^-0.5 * min(t^-0.5, t * warmup_steps^-1.5), with t from 1.

    Step 0 has the learning rate of t = 1.
    """
    require_at_least(1, warmup_steps=warmup_steps)
    t = max(t, 1)
    rate: float = scale * d_model**-0.5 * min(t**-0.5, t * warmup_steps**-1.5)
    return rate


def warmup_stable_decay(
    t: int, max_lr: float, warmup_steps: int, decay_steps: int, total_steps: int
) -> float:
    """WSD: linear warm-up to max_lr, constant, then linear decay to zero at `total_steps`."""
    require(
        0 <= warmup_steps <= total_steps - decay_steps,
        f"warmup_steps is {warmup_steps!r}",
        "it must be 0 to total_steps - decay_steps",
    )
    if t < warmup_steps:
        return max_lr * t / warmup_steps
    if t < total_steps - decay_steps:
        return max_lr
    return max_lr * max(0, total_steps - t) / max(decay_steps, 1)
