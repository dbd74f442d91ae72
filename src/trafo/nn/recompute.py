"""Less memory for the same numbers: remember the inputs of a cheap function, not its steps.

Autograd keeps what every step of a formula needs for its gradient; for an activation or a norm that
is several times its input. Running the formula a second time in the backward pass costs little,
because such functions only touch each number once, and leaves nothing but the inputs to keep
(Chen et al., 2016).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor


def worth_recomputing() -> bool:
    """Only where gradients are recorded; a compiler decides by itself what to keep."""
    return torch.is_grad_enabled() and not torch.compiler.is_compiling()


def recomputed(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    """`function(*inputs)`, run again when its gradient is asked for."""
    if not worth_recomputing():
        return function(*inputs)
    out: Tensor = _Recomputed.apply(function, *inputs)  # type: ignore[no-untyped-call]
    return out


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[1:]
        inputs, out = _run_again(ctx.function, ctx.saved_tensors, wanted)
        return (None, *_gradients(out, inputs, wanted, upstream))


def recomputed_linear(
    function: Callable[..., Tensor],
    weight: Float[Tensor, "d_out d_in"],
    *inputs: Float[Tensor, "*lead d_in"],
) -> Float[Tensor, "*lead d_out"]:
    """`function(*inputs) @ weight.T`, which does not even keep what goes into the product."""
    out: Tensor = _RecomputedLinear.apply(function, weight, *inputs)  # type: ignore[no-untyped-call]
    return out


class _RecomputedLinear(torch.autograd.Function):
    """y = f(x) W^T; dW = dy^T f(x) with f(x) run again, df = dy W goes on into f."""

    @staticmethod
    def forward(
        ctx: Any, function: Callable[..., Tensor], weight: Tensor, *inputs: Tensor
    ) -> Tensor:
        ctx.function = function
        ctx.save_for_backward(weight, *inputs)
        return function(*inputs) @ weight.T

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        wants_weight, *wanted = ctx.needs_input_grad[1:]
        weight, *inputs = ctx.saved_tensors
        inputs, hidden = _run_again(ctx.function, inputs, wanted)
        grad_weight = None
        if wants_weight:
            rows = upstream.reshape(-1, upstream.shape[-1])
            features = hidden if torch.is_grad_enabled() else hidden.detach()
            grad_weight = rows.T @ features.reshape(-1, features.shape[-1])
        if not any(wanted):
            return (None, grad_weight, *(None for _ in wanted))
        return (None, grad_weight, *_gradients(hidden, inputs, wanted, upstream @ weight))


def _run_again(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], wanted: Sequence[bool]
) -> tuple[list[Tensor], Tensor]:
    """The inputs as the start of a graph of their own, and the function's result on them."""
    if not torch.is_grad_enabled():
        inputs = [x.detach().requires_grad_(w) for x, w in zip(inputs, wanted, strict=True)]
    with torch.enable_grad():
        return list(inputs), function(*inputs)


def _gradients(
    out: Tensor, inputs: Sequence[Tensor], wanted: Sequence[bool], upstream: Tensor
) -> list[Tensor | None]:
    """d out / d input for the wanted ones; differentiable where somebody will ask for that."""
    targets = [x for x, w in zip(inputs, wanted, strict=True) if w]
    create_graph = torch.is_grad_enabled()
    grads = iter(torch.autograd.grad(out, targets, upstream, create_graph=create_graph))
    return [next(grads) if w else None for w in wanted]
