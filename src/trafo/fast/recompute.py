"""Recomputation (checkpointing) of cheap functions: keep their inputs, not their steps.

Autograd keeps what every step of a formula needs for its gradient; for an activation or a norm that
is several times its input. Running the formula a second time in the backward pass costs little,
because such functions touch each number only once, and leaves nothing but the inputs to keep
(Chen et al., 2016).

What it costs is memory traffic: each step of a formula reads and writes tensors larger than the
processor's cache. A function that treats every row alike runs over a few rows at a time, whose
steps stay in the cache. Where even that is much of a training step, the function comes with its
gradient written out by hand (`ManualGradient`), in fewer steps than autograd takes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from trafo.fast.mixed import is_mixed, narrow

# Numbers per block: its handful of steps fit into a cache, and two threads still share the work.
_BLOCK_NUMBERS = 2**18


@dataclass(frozen=True)
class ManualGradient:
    """A function of tensors of one shape, and its gradient, into memory that is there already."""

    forward: Callable[..., object]
    """(out, *inputs): writes the function's result into `out`"""
    backward: Callable[..., object]
    """(out, grads, upstream, *inputs): writes the result again into `out`, and each input's
    gradient into its place in `grads`. The last of these is `upstream` itself: write it last."""


def worth_recomputing() -> bool:
    """Whether gradients are recorded without a compiler, which decides by itself what to keep.

    Under autocast tensors change their dtype on the way, which autograd keeps track of; in our own
    mixed precision they do not.
    """
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return is_mixed() or not any(torch.is_autocast_enabled(name) for name in ("cpu", "cuda"))


def recomputed(
    function: Callable[..., Tensor],
    *inputs: Tensor,
    gradient: Callable[..., tuple[Tensor, ...]] | None = None,
) -> Tensor:
    """`function(*inputs)`, run again when its gradient is asked for.

    Unless `gradient(upstream, *inputs)`, written by hand, gives those of all inputs.
    """
    out: Tensor = _Recomputed.apply(function, gradient, *inputs)  # type: ignore[no-untyped-call]
    return out


class _Recomputed(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[..., Tensor],
        gradient: Callable[..., tuple[Tensor, ...]] | None,
        *inputs: Tensor,
    ) -> Tensor:
        ctx.function, ctx.gradient = function, gradient
        ctx.save_for_backward(*inputs)
        return function(*inputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[2:]
        if ctx.gradient is not None and all(wanted):
            return (None, None, *ctx.gradient(upstream, *ctx.saved_tensors))
        return (None, None, *_run_again(ctx.function, ctx.saved_tensors, wanted, upstream)[1])


def recomputed_linear(
    function: Callable[..., Tensor],
    weight: Float[Tensor, "d_out d_in"],
    *inputs: Float[Tensor, "*lead d_in"],
    steps: ManualGradient | None = None,
) -> Float[Tensor, "*lead d_out"]:
    """`function(*inputs) @ weight.T`, which does not even keep what goes into the product.

    The function must treat every row alike, whatever the others are. `steps` are its own, used
    where nothing has to be converted on the way.
    """
    if len({x.dtype for x in (weight, *inputs)}) > 1:
        steps = None
    out: Tensor = _RecomputedLinear.apply(function, steps, weight, *inputs)  # type: ignore[no-untyped-call]
    return out


class _RecomputedLinear(torch.autograd.Function):
    """y = f(x) W^T; dW = dy^T f(x) with f(x) run again, df = dy W goes on into f."""

    @staticmethod
    def forward(
        ctx: Any,
        function: Callable[..., Tensor],
        steps: ManualGradient | None,
        weight: Tensor,
        *inputs: Tensor,
    ) -> Tensor:
        ctx.function, ctx.steps, ctx.mixed, ctx.dtype = function, steps, is_mixed(), weight.dtype
        factors = weight.bfloat16() if ctx.mixed else weight
        ctx.save_for_backward(factors, *inputs)
        rows = [_as_rows(x) for x in inputs]
        out = torch.empty_like(rows[0])
        for block in _blocks(out):
            if steps is None:
                out[block] = function(*(x[block] for x in rows))
            else:
                steps.forward(out[block], *(x[block] for x in rows))
        product = (narrow(out, ctx.mixed) @ factors.T)[: len(out)]
        return product.to(ctx.dtype).view(*inputs[0].shape[:-1], len(weight))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        wants_weight, *wanted = ctx.needs_input_grad[2:]
        factors, *inputs = ctx.saved_tensors
        flat = _as_rows(upstream)
        rows = narrow(flat, ctx.mixed)
        inner = (rows @ factors)[: len(flat)].to(ctx.dtype)
        hidden, grads = _blockwise(ctx.function, ctx.steps, inputs, wanted, inner)
        if not wants_weight:
            return (None, None, None, *grads)
        return (None, None, (rows.T @ narrow(hidden, ctx.mixed)).to(ctx.dtype), *grads)


def _blockwise(
    function: Callable[..., Tensor],
    steps: ManualGradient | None,
    inputs: Sequence[Float[Tensor, "*lead d"]],
    wanted: Sequence[bool],
    upstream: Float[Tensor, "rows d"],
) -> tuple[Float[Tensor, "rows d"], list[Tensor | None]]:
    """The function's result, and the gradients of its wanted inputs, a block of rows at a time.

    `upstream` may be overwritten: whoever calls this has no further use for it.
    """
    rows = [_as_rows(x) for x in inputs]
    hidden = torch.empty_like(upstream)
    by_hand = steps is not None and all(wanted)
    grads = [torch.empty_like(x) if w else None for x, w in zip(rows, wanted, strict=True)]
    if by_hand:
        grads[-1] = upstream
    for block in _blocks(hidden):
        parts = [x[block] for x in rows]
        places = [None if grad is None else grad[block] for grad in grads]
        if steps is not None and by_hand:
            steps.backward(hidden[block], places, upstream[block], *parts)
            continue
        hidden[block], found = _run_again(function, parts, wanted, upstream[block])
        for place, part in zip(places, found, strict=True):
            if place is not None and part is not None:
                place.copy_(part)
    return hidden, [g if g is None else g.view_as(x) for g, x in zip(grads, inputs, strict=True)]


def _as_rows(x: Float[Tensor, "*lead d"]) -> Float[Tensor, "rows d"]:
    return x.reshape(-1, x.shape[-1])


def _blocks(rows: Float[Tensor, "rows d"]) -> Iterator[slice]:
    size = max(1, _BLOCK_NUMBERS // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], size):
        yield slice(start, start + size)


def _run_again(
    function: Callable[..., Tensor],
    inputs: Sequence[Tensor],
    wanted: Sequence[bool],
    upstream: Tensor,
) -> tuple[Tensor, list[Tensor | None]]:
    """The function's result, and the gradients of its wanted inputs, by autograd."""
    leaves = [x.detach().requires_grad_(w) for x, w in zip(inputs, wanted, strict=True)]
    with torch.enable_grad():
        out = function(*leaves)
    targets = [x for x in leaves if x.requires_grad]
    grads = iter(torch.autograd.grad(out, targets, upstream) if targets else ())
    return out.detach(), [next(grads) if w else None for w in wanted]
