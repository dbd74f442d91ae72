"""Mixed precision on a CPU: products of bfloat16 numbers, everything else in float32.

CPUs with AVX512_BF16 or AMX multiply bfloat16 at least twice as fast as float32. `torch.autocast`
alone gains little from that: it converts at each operation and passes bfloat16 on to operations
that are slow with it. Here, under the same autocast, a product converts its factors, keeps them
like that for the backward pass, which halves their memory, and returns float32.

oneDNN compiles each product for its sizes and keeps a thousand of them. Batches of sentences have
other sizes each time, so rows are filled up with zeros to a multiple of `ROWS`.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

ROWS = 128


def mixed_precision(device: torch.device, dtype: torch.dtype) -> torch.autocast:
    """Multiply numbers of `dtype` inside, unless it is float32."""
    return torch.autocast(device.type, dtype, enabled=dtype != torch.float32)


def is_mixed() -> bool:
    """Whether we convert factors to bfloat16, which a compiler does by itself."""
    return (
        torch.is_autocast_enabled("cpu")
        and torch.get_autocast_dtype("cpu") == torch.bfloat16
        and not torch.compiler.is_compiling()
    )


def narrow(rows: Float[Tensor, "rows d"], mixed: bool = True) -> Float[Tensor, "more d"]:
    """A factor of a mixed product: bfloat16, and rows of zeros at the end. Else unchanged."""
    if not mixed:
        return rows
    number = len(rows)
    narrowed = rows.new_empty(-(-number // ROWS) * ROWS, rows.shape[1], dtype=torch.bfloat16)
    narrowed[:number] = rows
    narrowed[number:] = 0.0
    return narrowed


def mixed_product(
    x: Float[Tensor, "*lead d_in"], weight: Float[Tensor, "d_out d_in"]
) -> Float[Tensor, "*lead d_out"]:
    """Multiply x W^T, and its gradients, in bfloat16 with sums in float32."""
    out: Tensor = _MixedProduct.apply(x, weight)  # type: ignore[no-untyped-call]
    return out


class _MixedProduct(torch.autograd.Function):
    """y = x W^T; dx = dy W, dW = dy^T x."""

    @staticmethod
    def forward(
        ctx: Any, x: Float[Tensor, "*lead d_in"], weight: Float[Tensor, "d_out d_in"]
    ) -> Float[Tensor, "*lead d_out"]:
        flat = x.reshape(-1, x.shape[-1])
        rows, factors = narrow(flat), weight.bfloat16()
        ctx.save_for_backward(rows, factors)
        ctx.x_like, ctx.weight_dtype = (x.shape, x.dtype), weight.dtype
        out = (rows @ factors.T)[: len(flat)]
        return out.to(weight.dtype).view(*x.shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        rows, factors = ctx.saved_tensors
        wants_x, wants_weight = ctx.needs_input_grad
        shape, dtype = ctx.x_like
        flat = upstream.reshape(-1, upstream.shape[-1])
        grads = narrow(flat)
        return (
            (grads @ factors)[: len(flat)].to(dtype).view(shape) if wants_x else None,
            (grads.T @ rows).to(ctx.weight_dtype) if wants_weight else None,
        )
