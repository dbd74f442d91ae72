"""AdamW (Loshchilov and Hutter, 2019): Adam with decoupled weight decay.

m <- b1 m + (1 - b1) g                  first moment: running mean of the gradient
v <- b2 v + (1 - b2) g^2                second moment: running mean of its square
theta <- theta - lr decay theta         decoupled weight decay
theta <- theta - lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps),    t = 1, 2, 3, ...
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from trafo.errors import require, require_at_least
from trafo.optim.optimizer import PerParameterOptimizer
from trafo.optim.sharded import local

# Elements per block: its parameter, gradient, moments and root fit into the cache together.
BLOCK_NUMBERS = 2**18


class AdamW(PerParameterOptimizer):
    """Adam with decoupled weight decay, where `betas` are the paper's beta1 and beta2."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        require_at_least(0, lr=lr, eps=eps, weight_decay=weight_decay)
        fit = all(0 <= beta < 1 for beta in betas)
        require(fit, f"betas is {betas!r}", "both must be at least 0 and below 1")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    def update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """One AdamW step."""
        state = self.state[parameter]
        if not state:
            state["t"] = 0
            state["m"] = torch.zeros_like(parameter)
            state["v"] = torch.zeros_like(parameter)
        state["t"] += 1
        t, lr, (beta1, beta2) = state["t"], group["lr"], group["betas"]
        for theta, g, m, v in _blocks(parameter, gradient, state["m"], state["v"]):
            m.lerp_(g, 1 - beta1)
            v.mul_(beta2).addcmul_(g, g, value=1 - beta2)
            theta.mul_(1 - lr * group["weight_decay"])
            root = v.sqrt().div_(math.sqrt(1 - beta2**t)).add_(group["eps"])
            theta.addcdiv_(m, root, value=-lr / (1 - beta1**t))


def _blocks(*tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
    """Tensors of one shape, block by block: all steps of an update find the block in the cache."""
    shards = [local(x) for x in tensors]
    if not all(x.is_contiguous() for x in shards):
        yield tuple(shards)
        return
    flat = [x.view(-1) for x in shards]
    for start in range(0, flat[0].numel(), BLOCK_NUMBERS):
        yield tuple(x[start : start + BLOCK_NUMBERS] for x in flat)
