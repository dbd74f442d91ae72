"""Norms that keep little more than their input: LayerNorm by torch's kernel, RMSNorm by hand."""

from functools import partial

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from trafo.fast.recompute import recomputed, worth_recomputing
from trafo.nn import LayerNorm, RMSNorm
from trafo.nn.norm import rms_norm
from trafo.nn.precision import at_least_float32


class FastRMSNorm(RMSNorm):
    """RMSNorm that keeps only its input and gain for the backward pass."""

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """As `RMSNorm.forward`."""
        if not worth_recomputing():
            return super().forward(x)
        function = partial(rms_norm, eps=self.eps)
        return recomputed(function, x, self.weight, gradient=partial(_gradient, eps=self.eps))


class FastLayerNorm(LayerNorm):
    """LayerNorm by torch's kernel: one pass; it keeps the input, and mean and scale of each row."""

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """As `LayerNorm.forward`."""
        if self.weight.dtype != x.dtype:
            return super().forward(x)
        return functional.layer_norm(x, self.weight.shape, self.weight, self.bias, self.eps)


def _gradient(
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
