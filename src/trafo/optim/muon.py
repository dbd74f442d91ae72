"""Muon (Jordan, 2024): momentum, orthogonalized by a Newton-Schulz iteration.

    b <- momentum b + g
    g' = g + momentum b                       (Nesterov)
    theta <- theta - lr decay theta - lr sqrt(max(1, rows / columns)) * orthogonalize(g')

A gradient is often dominated by few directions; orthogonalizing it lets the others learn as
fast. That is done without a singular value decomposition: the Newton-Schulz iteration

    X <- a X + (b A + c A^2) X,    A = X X^T

moves every singular value of X towards one, here quickly and roughly, which is enough.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.optimizer import ParamsT

from trafo.errors import require, require_at_least
from trafo.optim.optimizer import PerParameterOptimizer
from trafo.optim.sharded import local, local_part_of, whole

# The slope at 0 is as steep as it can be while all values end up between about 0.7 and 1.2.
_A, _B, _C = 3.4445, -4.7750, 2.0315


def orthogonalize(
    matrix: Float[Tensor, "rows columns"], steps: int = 5
) -> Float[Tensor, "rows columns"]:
    """A matrix with the singular vectors of the given one, and singular values of about one."""
    x: Tensor = matrix.float()
    is_tall = x.shape[0] > x.shape[1]
    if is_tall:
        x = x.T  # the smaller product
    x = x / (x.norm() + 1e-7)  # no singular value is above one
    for _ in range(steps):
        a = x @ x.T
        # addmm(y, p, q): beta y + alpha p q, in one pass over memory.
        powers = torch.addmm(a, a, a, beta=_B, alpha=_C)
        x = torch.addmm(x, powers, x, beta=_A)
    result: Tensor = x.T if is_tall else x
    return result.to(matrix.dtype)


class Muon(PerParameterOptimizer):
    """Muon, for the matrices inside a model; use AdamW for embeddings, the LM head and vectors."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.02,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        steps: int = 5,
    ) -> None:
        require_at_least(0, lr=lr, weight_decay=weight_decay)
        require_at_least(1, steps=steps)
        require(0 <= momentum < 1, f"momentum is {momentum!r}", "it must be at least 0 and below 1")
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "steps": steps}
        super().__init__(params, defaults)
        for group in self.param_groups:
            for parameter in group["params"]:
                require(
                    parameter.ndim == 2,
                    f"a parameter's shape is {tuple(parameter.shape)!r}",
                    "it must be 2-D",
                )

    def update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """One Muon step."""
        lr, momentum = group["lr"], group["momentum"]
        state = self.state[parameter]
        if not state:
            state["b"] = torch.zeros_like(parameter)
        state["b"].mul_(momentum).add_(gradient)
        ahead = gradient.add(state["b"], alpha=momentum)
        rows, columns = parameter.shape
        direction = local_part_of(orthogonalize(whole(ahead), group["steps"]), like=ahead)
        here = local(parameter)
        here.mul_(1 - lr * group["weight_decay"])
        here.add_(direction, alpha=-lr * math.sqrt(max(1.0, rows / columns)))
