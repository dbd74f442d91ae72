"""Norms: bring each vector to a common size, then let a learned gain choose the size again.

RMSNorm(x) = x / sqrt(mean(x^2) + eps) * gain                        (Zhang and Sennrich, 2019)
LayerNorm(x) = (x - mean(x)) / sqrt(var(x) + eps) * gain + shift     (Ba, Kiros and Hinton, 2016)
"""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module, Parameter

from trafo.nn.precision import at_least_float32
from trafo.nn.recompute import recomputed


def rms_norm(
    x: Float[Tensor, "*lead d_model"], gain: Float[Tensor, " d_model"], eps: float
) -> Float[Tensor, "*lead d_model"]:
    wide = at_least_float32(x)
    mean_square = wide.square().mean(-1, keepdim=True)
    return (wide * torch.rsqrt(mean_square + eps) * gain).to(x.dtype)


def _rms_norm_gradient(
    upstream: Float[Tensor, "*lead d_model"],
    x: Float[Tensor, "*lead d_model"],
    gain: Float[Tensor, " d_model"],
    eps: float,
) -> tuple[Float[Tensor, "*lead d_model"], Float[Tensor, " d_model"]]:
    """With r = 1 / sqrt(mean(x^2) + eps), n = r x and u the upstream gradient:

    dx = r (gain u - n mean(gain u n)),    dgain = sum of u n over the rows
    """
    wide, up = at_least_float32(x), at_least_float32(upstream)
    mean_square = wide.square().mean(-1, keepdim=True)
    r = torch.rsqrt(mean_square + eps)
    n = wide * r
    un = up * n
    along = (un @ gain.to(un.dtype))[..., None] / x.shape[-1]
    dx = (up * gain).addcmul_(n, along, value=-1).mul_(r)
    return dx.to(x.dtype), un.reshape(-1, x.shape[-1]).sum(0).to(gain.dtype)


def layer_norm(
    x: Float[Tensor, "*lead d_model"],
    gain: Float[Tensor, " d_model"],
    shift: Float[Tensor, " d_model"],
    eps: float,
) -> Float[Tensor, "*lead d_model"]:
    wide = at_least_float32(x)
    centred = wide - wide.mean(-1, keepdim=True)
    variance = centred.square().mean(-1, keepdim=True)
    return (centred * torch.rsqrt(variance + eps) * gain + shift).to(x.dtype)


class RMSNorm(Module):
    """Root-mean-square norm over the last dimension, computed in float32."""

    def __init__(
        self,
        d_model: int,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = Parameter(torch.ones(d_model, device=device, dtype=dtype))

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return recomputed(
            partial(rms_norm, eps=self.eps),
            x,
            self.weight,
            gradient=partial(_rms_norm_gradient, eps=self.eps),
        )

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"


class LayerNorm(Module):
    """Mean 0 and variance 1 over the last dimension, then gain and shift; computed in float32."""

    def __init__(
        self,
        d_model: int,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.eps = eps
        self.weight = Parameter(torch.ones(d_model, device=device, dtype=dtype))
        self.bias = Parameter(torch.zeros(d_model, device=device, dtype=dtype))

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        return recomputed(partial(layer_norm, eps=self.eps), x, self.weight, self.bias)

    def extra_repr(self) -> str:
        return f"{self.weight.shape[0]}, eps={self.eps}"
