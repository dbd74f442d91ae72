"""RMSNorm, LayerNorm, and the residual connection in which a norm stands.

RMSNorm(x)   = x / sqrt(mean(x^2) + eps) * gain                      (Zhang and Sennrich, 2019)
LayerNorm(x) = (x - mean(x)) / sqrt(var(x) + eps) * gain + shift     (Ba, Kiros and Hinton, 2016)

A sublayer f adds to the stream x instead of replacing it:
pre:  x + f(norm(x))     the residual stream is never normalized, gradients pass unchanged
post: norm(x + f(x))     as in 2017; deep stacks need learning rate warm-up (Xiong et al., 2020)
none: x + f(x)           to see what the norm is for
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module, Parameter

from trafo.nn.precision import Device, Dtype, at_least_float32

NormPlacement = Literal["pre", "post", "none"]


def residual(
    x: Float[Tensor, "*shape"],
    sublayer: Callable[[Tensor], Tensor],
    norm: Callable[[Tensor], Tensor] | None,
    placement: NormPlacement,
) -> Float[Tensor, "*shape"]:
    """Connect around `sublayer`, with `norm` unless the placement is none."""
    if placement == "none" or norm is None:
        return x + sublayer(x)
    if placement == "pre":
        return x + sublayer(norm(x))
    return norm(x + sublayer(x))


def rms_norm(
    x: Float[Tensor, "*lead d_model"], gain: Float[Tensor, " d_model"], eps: float
) -> Float[Tensor, "*lead d_model"]:
    """The formula, computed in float32 or wider."""
    wide = at_least_float32(x)
    mean_square = wide.square().mean(-1, keepdim=True)
    return (wide * torch.rsqrt(mean_square + eps) * gain).to(x.dtype)


class RMSNorm(Module):
    """Root-mean-square norm over the last dimension, computed in float32."""

    def __init__(
        self, d_model: int, eps: float = 1e-5, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = Parameter(torch.ones(d_model, device=device, dtype=dtype))

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Normalize the last dimension."""
        return rms_norm(x, self.weight, self.eps)

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        return f"{self.weight.shape[0]}, eps={self.eps}"


def layer_norm(
    x: Float[Tensor, "*lead d_model"],
    gain: Float[Tensor, " d_model"],
    shift: Float[Tensor, " d_model"],
    eps: float,
) -> Float[Tensor, "*lead d_model"]:
    """The formula, computed in float32 or wider."""
    wide = at_least_float32(x)
    centred = wide - wide.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return (centred * torch.rsqrt(variance + eps) * gain + shift).to(x.dtype)


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last dimension in float32, then gain and shift."""

    def __init__(
        self, d_model: int, eps: float = 1e-5, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = Parameter(torch.ones(d_model, device=device, dtype=dtype))
        self.bias = Parameter(torch.zeros(d_model, device=device, dtype=dtype))

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """Normalize the last dimension."""
        return layer_norm(x, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        return f"{self.weight.shape[0]}, eps={self.eps}"
