"""AdamW (Loshchilov and Hutter, 2019): moments of the gradient, and weight decay apart from them.

m <- b1 m + (1 - b1) g                  a running mean of the gradient
v <- b2 v + (1 - b2) g^2                and of its square
theta <- theta - lr decay theta
theta <- theta - lr * m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps),    t = 1, 2, 3, ...
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import ParamsT

from trafo.optim.optimizer import PerParameterOptimizer
from trafo.optim.validate import require


class AdamW(PerParameterOptimizer):
    """Adam with decoupled weight decay."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        require(lr >= 0, "lr", lr, "at least 0")
        require(all(0 <= beta < 1 for beta in betas), "betas", betas, "at least 0 and below 1")
        require(eps >= 0, "eps", eps, "at least 0")
        require(weight_decay >= 0, "weight_decay", weight_decay, "at least 0")
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults)

    def update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[parameter]
        if not state:
            state["t"] = 0
            state["m"] = torch.zeros_like(parameter)
            state["v"] = torch.zeros_like(parameter)
        state["t"] += 1
        t, m, v = state["t"], state["m"], state["v"]
        lr, (beta1, beta2) = group["lr"], group["betas"]
        m.lerp_(gradient, 1 - beta1)
        v.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        parameter.mul_(1 - lr * group["weight_decay"])
        root = v.sqrt().div_(math.sqrt(1 - beta2**t)).add_(group["eps"])
        parameter.addcdiv_(m, root, value=-lr / (1 - beta1**t))
