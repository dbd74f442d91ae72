"""The sizes of weights, gradients and activations, layer by layer: where a training goes wrong."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import Module

from trafo.optim.sharded import whole
from trafo.train.build import Training


class NormWatch:
    """Looks at a step when told to beforehand, and costs nothing otherwise."""

    def __init__(self, training: Training) -> None:
        self._model = training.model
        self._is_expecting = True
        self._activations: dict[str, float] = {}
        self._gradients: dict[str, float] = {}
        for index, layer in enumerate(training.model.layers):
            layer.register_forward_hook(self._hook(f"layers.{index}"))
        training.stepper.observe = self._observe

    def expect(self, expecting: bool) -> None:
        """Whether the coming step is to be looked at."""
        self._is_expecting = expecting

    @torch.no_grad()
    def take(self) -> dict[str, float]:
        """`weight_norm/...`, `gradient_norm/...` and `activation_rms/...` of the last step."""
        found = {
            f"weight_norm/{name}": _norm(parameter)
            for name, parameter in self._model.named_parameters()
        }
        found |= {f"gradient_norm/{name}": norm for name, norm in self._gradients.items()}
        return found | {f"activation_rms/{name}": rms for name, rms in self._activations.items()}

    def _observe(self) -> None:
        if self._is_expecting:
            self._gradients = {
                name: _norm(parameter.grad)
                for name, parameter in self._model.named_parameters()
                if parameter.grad is not None
            }

    def _hook(self, name: str):  # type: ignore[no-untyped-def]
        def look(module: Module, inputs: object, output: Tensor) -> None:
            if self._is_expecting:
                self._activations[name] = float(output.detach().square().mean().sqrt())

        return look


def _norm(tensor: Tensor) -> float:
    return float(whole(tensor.detach().norm()))
