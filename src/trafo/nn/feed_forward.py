"""Feed-forward layers: two linear maps with an activation between, for each position alone.

FeedForward(x) = W2 f(W1 x + b1) + b2                                (Vaswani et al., 2017)
SwiGLU(x)      = W2 (SiLU(W1 x) * W3 x), which adds a gate           (Shazeer, 2020)

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
from torch.nn import Module

from trafo.nn.linear import Linear
from trafo.nn.precision import Device, Dtype

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


FeedForwardName = Literal["swiglu", "silu", "gelu", "relu", "relu2"]


def default_d_ff(kind: FeedForwardName, d_model: int) -> int:
    """4 d_model for two matrices, or as costly: 8/3 d_model, in steps of 64, for SwiGLU's three."""
    if kind != "swiglu":
        return 4 * d_model
    return max(64, round(8 * d_model / 3 / 64) * 64)


class FeedForward(Module):
    """W2 f(W1 x): ReLU with biases is the 2017 paper's, tanh-GELU with biases is GPT-2's MLP."""

    def __init__(
        self,
        d_model: int,
        d_ff: int | None = None,
        activation: ActivationName = "relu",
        device: Device = None,
        dtype: Dtype = None,
        *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        d_ff = d_ff or 4 * d_model
        self.activation = activation
        self.w1 = Linear(d_model, d_ff, device, dtype, bias=bias)
        self.w2 = Linear(d_ff, d_model, device, dtype, bias=bias)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """W2 f(W1 x), with biases if it has them."""
        return self.w2(ACTIVATIONS[self.activation](self.w1(x)))  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        return self.activation


def silu_gate(
    gate: Float[Tensor, "*shape"], value: Float[Tensor, "*shape"]
) -> Float[Tensor, "*shape"]:
    """SiLU(gate) * value."""
    return silu(gate) * value


class SwiGLU(Module):
    """W2 (SiLU(W1 x) * W3 x), no biases."""

    def __init__(
        self, d_model: int, d_ff: int | None = None, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        d_ff = d_ff or default_d_ff("swiglu", d_model)
        self.w1 = Linear(d_model, d_ff, device, dtype)
        self.w2 = Linear(d_ff, d_model, device, dtype)
        self.w3 = Linear(d_model, d_ff, device, dtype)

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """W2 (SiLU(W1 x) * W3 x)."""
        return self.w2(silu_gate(self.w1(x), self.w3(x)))  # type: ignore[no-any-return]
