"""Activations: the non-linearity between two linear maps, which would otherwise be one linear map.

relu(x)      = max(x, 0)
relu2(x)     = max(x, 0)^2                                           (So et al., 2021)
silu(x)      = x sigmoid(x)                                          (Elfwing et al., 2017)
gelu(x)      = x Phi(x), Phi the normal distribution function        (Hendrycks and Gimpel, 2016)
gelu_tanh(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the form GPT-2 was trained with
"""

import math
from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

ActivationName = Literal["relu", "relu2", "silu", "gelu", "gelu_tanh"]


def relu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """max(x, 0)."""
    return torch.where(x <= 0, 0.0, x)  # this way round, NaN stays NaN and is noticed


def relu2(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """max(x, 0)^2."""
    return relu(x).square()


def silu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """x sigmoid(x)."""
    return x * torch.sigmoid(x)


def gelu(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """x Phi(x)."""
    return 0.5 * x * (1.0 + torch.erf(x / math.sqrt(2.0)))


def gelu_tanh(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """GELU, tanh approximation."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    return 0.5 * x * (1.0 + torch.tanh(inner))


ACTIVATIONS: dict[ActivationName, Callable[[Tensor], Tensor]] = {
    "relu": relu,
    "relu2": relu2,
    "silu": silu,
    "gelu": gelu,
    "gelu_tanh": gelu_tanh,
}
