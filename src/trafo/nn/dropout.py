"""Dropout (Srivastava et al., 2014): while training, set a share `p` of the numbers to zero.

The rest grow by 1/(1-p), so that the expected value stays and nothing changes when not training.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module

from trafo.errors import ConfigError


class Dropout(Module):
    """Zeroes each number with probability `p`, in training mode only."""

    def __init__(self, p: float = 0.0) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ConfigError(f"dropout is {p}", hint="choose a number from 0 up to, not with, 1")
        self.p = p

    def forward(self, x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
        if not self.training or self.p == 0.0:
            return x
        keep = torch.empty_like(x).bernoulli_(1.0 - self.p)
        return x * keep / (1.0 - self.p)

    def extra_repr(self) -> str:
        return f"p={self.p}"
