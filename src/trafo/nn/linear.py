"""y = W x (+ b): the only place where features mix, and nearly all the arithmetic of a model."""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import Module, Parameter

from trafo.nn.init import truncated_normal_, xavier_std
from trafo.nn.recompute import recomputed_linear, worth_recomputing

# From so many rows on, a product without gradients is faster with tokens as columns.
MANY_ROWS = 64


class Linear(Module):
    """A matrix of shape (out, in) applied to the last dimension; no bias unless asked."""

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
        if self.bias is None:
            return x @ self.weight.T
        # One pass over memory instead of a product and then a sum.
        rows = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight.T)
        return rows.view(*x.shape[:-1], self.weight.shape[0])

    def after(
        self, function: Callable[..., Tensor], *inputs: Float[Tensor, "*lead d_in"]
    ) -> Float[Tensor, "*lead d_out"]:
        """`self(function(*inputs))` for a cheap function, whose result training need not keep."""
        if not worth_recomputing():
            out: Tensor = self(function(*inputs))
            return out
        out = recomputed_linear(function, self.weight, *inputs)
        return out if self.bias is None else out + self.bias

    def extra_repr(self) -> str:
        out_features, in_features = self.weight.shape
        return f"{in_features} -> {out_features}, bias={self.bias is not None}"
