"""What all optimizers share: a step updates each parameter that has a gradient."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import Optimizer


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
        """Change these parameters in place, all have gradients; `group`: their hyperparameters."""

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One optimizer step; returns the loss of `closure`, which computes it anew."""
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
        """Change one parameter in place; `group` holds its hyperparameters."""

    def update_group(self, parameters: Sequence[Tensor], group: dict[str, Any]) -> None:
        """One by one."""
        for parameter in parameters:
            assert parameter.grad is not None
            self.update(parameter, parameter.grad, group)
