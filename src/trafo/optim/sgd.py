"""Stochastic gradient descent (SGD) with a learning rate that decays as 1 / sqrt(step).

theta <- theta - lr / sqrt(t + 1) * gradient,    t = 0, 1, 2, ...
"""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor
from torch.optim.optimizer import ParamsT

from trafo.errors import require_at_least
from trafo.optim.optimizer import PerParameterOptimizer


class SGD(PerParameterOptimizer):
    """SGD without momentum; t counts the steps of each parameter."""

    def __init__(self, params: ParamsT, lr: float = 1e-3) -> None:
        require_at_least(0, lr=lr)
        super().__init__(params, {"lr": lr})

    def update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """One SGD step."""
        state = self.state[parameter]
        t = state.get("t", 0)
        parameter.add_(gradient, alpha=-group["lr"] / math.sqrt(t + 1))
        state["t"] = t + 1
