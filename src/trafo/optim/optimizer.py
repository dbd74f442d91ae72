"""What all optimizers share, and the simplest of them.

SGD with a learning rate that decays as 1 / sqrt(step):
theta <- theta - lr / sqrt(t + 1) * gradient,    t = 0, 1, 2, ...
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer, ParamsT

from trafo.errors import require_at_least


class GroupOptimizer(Optimizer):
    """An optimizer that updates the parameters of one group after the other."""

    # PyTorch wraps these to keep them out of compiled graphs, and each wrapper imports the compiler
    # on its first call: 2 s of every start. Only models are compiled here, never optimizers.
    add_param_group = unwrap(Optimizer.add_param_group)
    zero_grad = unwrap(Optimizer.zero_grad)
    state_dict = unwrap(Optimizer.state_dict)
    load_state_dict = unwrap(Optimizer.load_state_dict)

    @abstractmethod
    def update_group(self, parameters: Sequence[Tensor], group: dict[str, Any]) -> None:
        """Change these parameters, which all have gradients, by the hyperparameters of `group`."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """Take one step and return the loss of `closure`, which computes it anew."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            self.update_group([each for each in group["params"] if each.grad is not None], group)
        return loss


class PerParameterOptimizer(GroupOptimizer):
    """An optimizer that updates one parameter after the other."""

    @abstractmethod
    def update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """Change one parameter in place by the hyperparameters of `group`."""

    def update_group(self, parameters: Sequence[Tensor], group: dict[str, Any]) -> None:
        """One by one."""
        for parameter in parameters:
            assert parameter.grad is not None
            self.update(parameter, parameter.grad, group)


class SGD(PerParameterOptimizer):
    """SGD without momentum, where t counts the steps of each parameter."""

    def __init__(self, params: ParamsT, lr: float = 1e-3) -> None:
        require_at_least(0, lr=lr)
        super().__init__(params, {"lr": lr})

    def update(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        """One SGD step."""
        state = self.state[parameter]
        t = state.get("t", 0)
        parameter.add_(gradient, alpha=-group["lr"] / math.sqrt(t + 1))
        state["t"] = t + 1
