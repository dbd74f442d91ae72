"""Attention before it had the name: kernel regression (Nadaraya, 1964; Watson, 1964).

f(x) = sum_i K(x - x_i) / sum_j K(x - x_j) y_i. With the Gaussian kernel K(u) = exp(-(u w)^2 / 2)
the weights are softmax(-((x - x_i) w)^2 / 2): the nearer a key, the more its value counts. A large
w is a narrow kernel, w -> 0 is average pooling. Learning w is the first step to attention.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module, Parameter

from trafo.nn.attention import softmax, weighted_mean
from trafo.nn.precision import Device, Dtype


def average_pooling(
    query: Float[Tensor, "*lead queries"],
    key: Float[Tensor, "*#lead keys"],
    value: Float[Tensor, "*#lead keys d_value"],
) -> Float[Tensor, "*lead queries d_value"]:
    """The mean of all values for every query: attention with equal weights."""
    mean = value.mean(-2, keepdim=True)
    return mean.expand(*query.shape, value.shape[-1])


def kernel_weights(
    query: Float[Tensor, "*lead queries"],
    key: Float[Tensor, "*#lead keys"],
    inverse_width: float | Float[Tensor, ""] = 1.0,
) -> Float[Tensor, "*lead queries keys"]:
    """softmax(-((x - x_i) w)^2 / 2) over the keys."""
    distance = query[..., :, None] - key[..., None, :]
    return softmax(-0.5 * (distance * inverse_width).square(), dim=-1)


def nadaraya_watson(
    query: Float[Tensor, "*lead queries"],
    key: Float[Tensor, "*#lead keys"],
    value: Float[Tensor, "*#lead keys d_value"],
    inverse_width: float = 1.0,
) -> Float[Tensor, "*lead queries d_value"]:
    """Nadaraya-Watson regression with a fixed kernel width."""
    return weighted_mean(kernel_weights(query, key, inverse_width), value)


class NadarayaWatson(Module):
    """Nadaraya-Watson regression with a learned width: w is the only parameter."""

    def __init__(
        self, inverse_width: float = 1.0, device: Device = None, dtype: Dtype = None
    ) -> None:
        super().__init__()
        self.inverse_width = Parameter(torch.tensor(inverse_width, device=device, dtype=dtype))

    def forward(
        self,
        query: Float[Tensor, "*lead queries"],
        key: Float[Tensor, "*#lead keys"],
        value: Float[Tensor, "*#lead keys d_value"],
    ) -> Float[Tensor, "*lead queries d_value"]:
        """The kernel-weighted mean of the values, for each query."""
        return weighted_mean(kernel_weights(query, key, self.inverse_width), value)
