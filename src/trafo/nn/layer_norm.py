"""LayerNorm(x) = (x - mean(x)) / sqrt(var(x) + eps) * gain + shift (Ba, Kiros and Hinton, 2016)."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module, Parameter

from trafo.nn.precision import Device, Dtype, at_least_float32


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
    """Mean 0 and variance 1 over the last dimension, then gain and shift; computed in float32."""

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
