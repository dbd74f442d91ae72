"""FeedForward(x) = W2 f(W1 x + b1) + b2 (Vaswani et al., 2017, with f = ReLU).

Two linear maps with an activation between, for each position alone; the gated one is `swiglu.py`.
"""

from typing import Literal

from jaxtyping import Float
from torch import Tensor
from torch.nn import Module

from trafo.nn.activation import ACTIVATIONS, ActivationName
from trafo.nn.linear import Linear
from trafo.nn.precision import Device, Dtype

FeedForwardName = Literal["swiglu", "silu", "gelu", "relu", "relu2"]


def default_d_ff(kind: FeedForwardName, d_model: int) -> int:
    """4 d_model for two matrices; for SwiGLU's three the same cost, 8/3 d_model, in steps of 64."""
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
