"""Muon (Jordan, 2024): momentum, orthogonalized by a Newton-Schulz iteration.

    b <- momentum b + g
    g' = g + momentum b                       (Nesterov)
    theta <- theta - lr decay theta - lr sqrt(max(1, rows / columns)) * orthogonalize(g')

A gradient is often dominated by few directions; orthogonalizing it lets the others learn as
fast. That is done without a singular value decomposition: the Newton-Schulz iteration

    X <- a X + (b A + c A^2) X,    A = X X^T

moves every singular value of X towards one, here quickly and roughly, which is enough. Matrices
of the same shape go through it together: a product of one of them is too short for many threads.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.optim.optimizer import ParamsT

from trafo.errors import require, require_at_least
from trafo.optim.optimizer import GroupOptimizer
from trafo.optim.sharded import local, local_part_of, whole

# The slope at 0 is as steep as it can be while all values end up between about 0.7 and 1.2.
_A, _B, _C = 3.4445, -4.7750, 2.0315


_TOGETHER = 1 << 20
"""numbers that are orthogonalized together, about; more would no longer be in a cache"""


def orthogonalize(
    matrices: Float[Tensor, "*number rows columns"], steps: int = 5
) -> Float[Tensor, "*number rows columns"]:
    """Each matrix with its singular vectors, and singular values of about one."""
    x: Tensor = matrices.float().reshape(-1, *matrices.shape[-2:])
    is_tall = x.shape[1] > x.shape[2]
    if is_tall:
        x = x.mT  # the smaller product
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)  # no singular value is above one
    for _ in range(steps):
        a = x @ x.mT
        # baddbmm(y, p, q): beta y + alpha p q, in one pass over memory.
        powers = torch.baddbmm(a, a, a, beta=_B, alpha=_C)
        x = torch.baddbmm(x, powers, x, beta=_A)
    result: Tensor = x.mT if is_tall else x
    return result.to(matrices.dtype).view_as(matrices)


class Muon(GroupOptimizer):
    """Muon, for the matrices inside a model, beside AdamW for embeddings, head and vectors."""

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

    def update_group(self, parameters: Sequence[Tensor], group: dict[str, Any]) -> None:
        """One Muon step."""
        for alike in _alike(parameters):
            gradients = [self._look_ahead(parameter, group["momentum"]) for parameter in alike]
            stacked = torch.stack([whole(gradient) for gradient in gradients])
            directions = orthogonalize(stacked, group["steps"])
            for parameter, gradient, direction in zip(alike, gradients, directions, strict=True):
                self._move(parameter, local_part_of(direction, like=gradient), group)

    def _look_ahead(self, parameter: Tensor, momentum: float) -> Tensor:
        """Nesterov's gradient."""
        state, gradient = self.state[parameter], parameter.grad
        assert gradient is not None
        if not state:
            state["b"] = torch.zeros_like(parameter)
        state["b"].mul_(momentum).add_(gradient)
        return gradient.add(state["b"], alpha=momentum)

    def _move(self, parameter: Tensor, direction: Tensor, group: dict[str, Any]) -> None:
        rows, columns = parameter.shape
        here = local(parameter)
        here.mul_(1 - group["lr"] * group["weight_decay"])
        here.add_(direction, alpha=-group["lr"] * math.sqrt(max(1.0, rows / columns)))


def _alike(parameters: Sequence[Tensor]) -> Iterator[Sequence[Tensor]]:
    """Those of the same shape, as many as are orthogonalized together."""
    by_shape: dict[torch.Size, list[Tensor]] = defaultdict(list)
    for parameter in parameters:
        by_shape[parameter.shape].append(parameter)
    for shape, same in by_shape.items():
        number = max(1, _TOGETHER // max(1, shape.numel()))
        yield from (same[first : first + number] for first in range(0, len(same), number))
