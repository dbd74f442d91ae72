"""The two layers that are a table of weights, and how weights begin.

Linear:     y = W x (+ b), the only place where features mix, and nearly all of a model's arithmetic
Embedding:  the vector of an id is its row
"""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import Module, Parameter

from trafo.nn.precision import Device, Dtype


class Linear(Module):
    """A matrix of shape (out, in) and an optional bias, applied to the last dimension.

    Its first weights have the variance 2/(in+out), which keeps the scale of signals and gradients
    (Glorot and Bengio, 2010).
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        device: Device = None,
        dtype: Dtype = None,
        *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        weight = torch.empty(out_features, in_features, device=device, dtype=dtype)
        std = math.sqrt(2.0 / (in_features + out_features))
        self.weight = Parameter(truncated_normal_(weight, std=std))
        self.bias: Parameter | None = None
        if bias:
            self.bias = Parameter(torch.zeros(out_features, device=device, dtype=dtype))

    def forward(self, x: Float[Tensor, "... d_in"]) -> Float[Tensor, "... d_out"]:
        """x W^T (+ b)."""
        out = x @ self.weight.T
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        out_features, in_features = self.weight.shape
        return f"{in_features} -> {out_features}, bias={self.bias is not None}"


class Embedding(Module):
    """A table (num_embeddings, embedding_dim), N(0, std^2) truncated at 3 std."""

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        device: Device = None,
        dtype: Dtype = None,
        *,
        std: float = 1.0,
    ) -> None:
        super().__init__()
        table = torch.empty(num_embeddings, embedding_dim, device=device, dtype=dtype)
        self.weight = Parameter(truncated_normal_(table, std=std))

    def forward(self, ids: Int[Tensor, "..."]) -> Float[Tensor, "... d_model"]:
        """The rows of these ids."""
        # Not weight[ids]: its gradient is added up in the order in which threads happen to run,
        # here in the order of the ids, the same every time (and ten times as fast).
        return self.weight.index_select(0, ids.flatten()).view(*ids.shape, -1)

    def extra_repr(self) -> str:
        """Sizes and settings, for `print(model)`."""
        return f"{self.weight.shape[0]} ids -> {self.weight.shape[1]}"


@torch.no_grad()
def truncated_normal_(tensor: Tensor, std: float, cut: float = 3.0) -> Tensor:
    """Fill `tensor` in place with N(0, std^2) truncated at `cut` standard deviations.

    The inverse normal CDF of a uniform number is normal; drawing the number between Phi(-cut) and
    Phi(cut) truncates the tails exactly, without rejection.
    """
    if tensor.is_meta:  # nothing to fill; its formulas would import the compiler, 2 s
        return tensor
    edge = math.erf(cut / math.sqrt(2.0))  # 2 Phi(cut) - 1
    # In float32 whatever the tensor's dtype: a rounded-up edge would map to infinity.
    draw = torch.empty_like(tensor, dtype=torch.float32).uniform_(-edge, edge).erfinv_()
    return tensor.copy_(draw.mul_(std * math.sqrt(2.0)).clamp_(-cut * std, cut * std))
