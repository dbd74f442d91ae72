"""Gradient clipping (global norm): scale down all gradients together if their norm is too large.

norm = sqrt(sum of g^2 over all parameters)
g <- g * max_l2_norm / (norm + eps)    if norm > max_l2_norm
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from trafo.errors import require
from trafo.optim.sharded import local, whole


@torch.no_grad()
def clip_gradients(parameters: Iterable[Tensor], max_l2_norm: float, eps: float = 1e-6) -> Tensor:
    """Clip in place and return the global norm before clipping."""
    require(max_l2_norm > 0, f"max_l2_norm is {max_l2_norm!r}", "it must be above 0")
    gradients = [p.grad for p in parameters if p.grad is not None]
    if not gradients:
        return torch.zeros(())
    norm: Tensor = torch.stack([whole(gradient.norm()) for gradient in gradients]).norm()
    if norm > max_l2_norm:
        for gradient in gradients:
            local(gradient).mul_(max_l2_norm / (norm + eps))
    return norm
