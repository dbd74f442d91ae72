"""Weights for tests of models: ours, and those of other libraries."""

from typing import TypeVar

import torch

Model = TypeVar("Model", bound=torch.nn.Module)


def shake(model: Model) -> Model:
    """Gains and biases other than 1 and 0, so that none can be forgotten; in evaluation mode."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()
