"""y = W x (+ b): the only place where features mix, and nearly all the arithmetic of a model."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module, Parameter

from trafo.nn.init import truncated_normal_, xavier_std


class Linear(Module):
    """A matrix of shape (out, in) applied to the last dimension; bias is optional."""

    def __init__(
        self,
        in_features: int,
        out_features: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        bias: bool = False,
    ) -> None:
        super().__init__()
        self.weight = Parameter(torch.empty(out_features, in_features, device=device, dtype=dtype))
        truncated_normal_(self.weight, std=xavier_std(in_features, out_features))
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
