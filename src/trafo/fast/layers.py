"""The layers of `nn/` in fewer passes over memory, and keeping less for the backward pass.

Linear starts its product from the bias. RMSNorm, SwiGLU and FeedForward are recomputed in the
backward pass, with gradients by hand. LayerNorm is torch's kernel. RoPE is one complex product,
(a + ib) (cos + i sin), instead of six real ones.
"""

from functools import partial

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from trafo.fast.mixed import is_mixed, mixed_product
from trafo.fast.recompute import ManualGradient, recomputed, recomputed_linear, worth_recomputing
from trafo.nn import (
    ACTIVATIONS,
    FeedForward,
    LayerNorm,
    Linear,
    RMSNorm,
    RotaryPositionalEmbedding,
    SwiGLU,
)
from trafo.nn.feed_forward import silu_gate
from trafo.nn.norm import rms_norm
from trafo.nn.precision import at_least_float32


class FastLinear(Linear):
    """Linear whose product starts from the bias, or has bfloat16 factors under autocast."""

    def forward(self, x: Float[Tensor, "... d_in"]) -> Float[Tensor, "... d_out"]:
        """As `Linear.forward`."""
        if is_mixed():
            out = mixed_product(x, self.weight)
            return out if self.bias is None else out + self.bias
        if self.bias is None:
            return super().forward(x)
        rows = torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight.T)
        return rows.view(*x.shape[:-1], self.weight.shape[0])


class FastRMSNorm(RMSNorm):
    """RMSNorm that keeps only its input and gain for the backward pass."""

    def forward(self, x: Float[Tensor, "... d_model"]) -> Float[Tensor, "... d_model"]:
        """As `RMSNorm.forward`."""
        if not worth_recomputing():
            return super().forward(x)
        function = partial(rms_norm, eps=self.eps)
        return recomputed(function, x, self.weight, gradient=partial(_gradient, eps=self.eps))


class FastLayerNorm(LayerNorm):
    """LayerNorm by torch's kernel, which keeps the input, and mean and scale of each row."""

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


class FastRotaryPositionalEmbedding(RotaryPositionalEmbedding):
    """RoPE in complex arithmetic, except under a compiler, which fuses real arithmetic only."""

    def forward(
        self,
        x: Float[Tensor, "... seq d_k"],
        token_positions: Int[Tensor, "... seq"] | None = None,
    ) -> Float[Tensor, "... seq d_k"]:
        """As `RotaryPositionalEmbedding.forward`."""
        if torch.compiler.is_compiling():
            return super().forward(x, token_positions)
        pairs = rearrange(at_least_float32(x), "... (pair two) -> ... pair two", two=2)
        odd_strides = any(stride % 2 for stride in (*pairs.stride()[:-2], pairs.storage_offset()))
        if (
            pairs.stride(-1) != 1 or odd_strides
        ):  # a complex number is two neighbours, at even places
            pairs = pairs.contiguous()
        angles = torch.complex(*self.cos_sin(x.shape[-2], token_positions))
        rotated = torch.view_as_real(torch.view_as_complex(pairs) * angles)
        return rotated.flatten(-2).to(x.dtype)


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


_SILU_GATE = ManualGradient(_silu_gate_forward, _silu_gate_backward)


def _relu_forward(out: Tensor, x: Tensor) -> None:
    torch.clamp(x, min=0.0, out=out)  # NaN stays NaN


def _relu_backward(out: Tensor, grads: list[Tensor], upstream: Tensor, x: Tensor) -> None:
    _relu_forward(out, x)
    torch.ops.aten.threshold_backward.grad_input(upstream, out, 0.0, grad_input=grads[0])


_RELU = ManualGradient(_relu_forward, _relu_backward)


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
