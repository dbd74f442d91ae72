"""SwiGLU(x) = W2 (SiLU(W1 x) * W3 x) (Shazeer, 2020): the feed-forward layer with a gate."""

from jaxtyping import Float
from torch import Tensor
from torch.nn import Module

from trafo.nn.activation import silu
from trafo.nn.feed_forward import default_d_ff
from trafo.nn.linear import Linear
from trafo.nn.precision import Device, Dtype


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
