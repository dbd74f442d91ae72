"""Feed-forward layers that keep only what goes into the activation.

In training the activation is run again in the backward pass, a block of rows at a time, and
SwiGLU's gradient is written out by hand. Without gradients, products run with tokens as columns.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from trafo.fast.recompute import WrittenOut, recomputed_linear, worth_recomputing
from trafo.nn import ACTIVATIONS, FeedForward, SwiGLU
from trafo.nn.swiglu import silu_gate

# From this many rows on, a product without gradients is faster with tokens as columns.
MANY_ROWS = 64


class FastSwiGLU(SwiGLU):
    """SwiGLU with less memory and memory traffic."""

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """As `SwiGLU.forward`."""
        if worth_recomputing():
            inputs = self.w1(x), self.w3(x)
            return recomputed_linear(silu_gate, self.w2.weight, *inputs, steps=_SILU_GATE)
        if torch.is_grad_enabled() or x.numel() < MANY_ROWS * x.shape[-1]:
            return super().forward(x)
        # W X for X W^T: the same numbers, and a layout in which products run faster.
        columns = x.reshape(-1, x.shape[-1]).T
        hidden = silu_gate(self.w1.weight @ columns, self.w3.weight @ columns)
        return (self.w2.weight @ hidden).T.reshape(x.shape)


def _silu_gate_forward(out: Tensor, gate: Tensor, value: Tensor) -> None:
    torch.sigmoid(gate, out=out).mul_(gate).mul_(value)


def _silu_gate_backward(
    out: Tensor, grads: list[Tensor], upstream: Tensor, gate: Tensor, value: Tensor
) -> None:
    """With s = sigmoid(g): silu'(g) = s + silu(g) (1 - s), between silu(g) and 1 at s."""
    d_gate, d_value = grads
    share = torch.sigmoid(gate)
    activated = gate * share
    slope = torch.lerp(activated, torch.ones_like(activated[:1, :1]), share, out=share)
    torch.mul(slope.mul_(value), upstream, out=d_gate)
    torch.mul(activated, value, out=out)
    torch.mul(activated, upstream, out=d_value)


_SILU_GATE = WrittenOut(_silu_gate_forward, _silu_gate_backward)


def _relu_forward(out: Tensor, x: Tensor) -> None:
    torch.clamp(x, min=0.0, out=out)  # NaN stays NaN


def _relu_backward(out: Tensor, grads: list[Tensor], upstream: Tensor, x: Tensor) -> None:
    _relu_forward(out, x)
    torch.ops.aten.threshold_backward.grad_input(upstream, out, 0.0, grad_input=grads[0])


_RELU = WrittenOut(_relu_forward, _relu_backward)


class FastFeedForward(FeedForward):
    """FeedForward with less memory, for every activation."""

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """As `FeedForward.forward`."""
        if self.activation == "relu" and not torch.is_grad_enabled():
            hidden: Tensor = self.w1(x)
            out: Tensor = self.w2(hidden.clamp_(min=0.0))  # NaN stays NaN
            return out
        if not worth_recomputing():
            return super().forward(x)
        steps = _RELU if self.activation == "relu" else None
        function = ACTIVATIONS[self.activation]
        out = recomputed_linear(function, self.w2.weight, self.w1(x), steps=steps)
        return out if self.w2.bias is None else out + self.w2.bias
