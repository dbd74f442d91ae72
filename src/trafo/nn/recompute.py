"""Less memory for the same numbers: remember the inputs of a cheap function, not its steps.

Autograd keeps what every step of a formula needs for its gradient; for an activation or a norm that
is several times its input. Running the formula a second time in the backward pass costs little,
because such functions only touch each number once, and leaves nothing but the inputs to keep
(Chen et al., 2016).

What little it costs is waiting for memory: each step of a formula reads and writes tensors larger
than the processor's cache. A function that treats every row alike runs over a few rows at a time,
whose steps stay in the cache. Where even that is much of a training step, the function may come
with its gradient written out by hand (`WrittenOut`), in fewer steps than autograd takes.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

# Numbers of a block: its handful of steps fit into a cache, and two threads still share the work.
_BLOCK_NUMBERS = 2**18


@dataclass(frozen=True)
class WrittenOut:
    """A function of tensors of one shape, and its gradient, into memory that is there already."""

    forward: Callable[..., object]
    """(out, *inputs): writes the function's result into `out`"""
    backward: Callable[..., object]
    """(out, grads, upstream, *inputs): writes the result again into `out`, and each input's
    gradient into its place in `grads`. The last of these is `upstream` itself: write it last."""


_WRITTEN_OUT: dict[Callable[..., Tensor], WrittenOut] = {}


def write_out(function: Callable[..., Tensor], steps: WrittenOut) -> None:
    """`recomputed_linear` takes these steps for `function` from now on: the same numbers."""
    _WRITTEN_OUT[function] = steps


def worth_recomputing() -> bool:
    """Only where gradients are recorded; a compiler decides by itself what to keep.

    Under autocast numbers change their type on the way, which autograd keeps track of.
    """
    return (
        torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and not any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))
    )


def recomputed(
    function: Callable[..., Tensor],
    *inputs: Tensor,
    gradient: Callable[..., tuple[Tensor, ...]] | None = None,
) -> Tensor:
    """`function(*inputs)`, run again when its gradient is asked for.

    Unless `gradient(upstream, *inputs)`, written by hand, gives those of all inputs.
    """
    if not worth_recomputing():
        return function(*inputs)
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
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        wanted = ctx.needs_input_grad[2:]
        if ctx.gradient is not None and all(wanted) and not torch.is_grad_enabled():
            return (None, None, *ctx.gradient(upstream, *ctx.saved_tensors))
        inputs, out = _run_again(ctx.function, ctx.saved_tensors, wanted)
        return (None, None, *_gradients(out, inputs, wanted, upstream))


def recomputed_linear(
    function: Callable[..., Tensor],
    weight: Float[Tensor, "d_out d_in"],
    *inputs: Float[Tensor, "*lead d_in"],
) -> Float[Tensor, "*lead d_out"]:
    """`function(*inputs) @ weight.T`, which does not even keep what goes into the product.

    The function must treat every row alike, whatever the others are.
    """
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
        return rowwise(function, *inputs) @ weight.T

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # somebody will ask for the gradient of this gradient
            return _differentiable_backward(ctx, upstream)
        wants_weight, *wanted = ctx.needs_input_grad[1:]
        weight, *inputs = ctx.saved_tensors
        rows = _as_rows(upstream)
        hidden, grads = _rowwise_again(ctx.function, inputs, wanted, rows @ weight)
        return (None, rows.T @ hidden if wants_weight else None, *grads)


def _differentiable_backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
    """The same by autograd's own means, which remember what they did."""
    wants_weight, *wanted = ctx.needs_input_grad[1:]
    weight, *inputs = ctx.saved_tensors
    inputs, hidden = _run_again(ctx.function, inputs, wanted)
    grad_weight = _as_rows(upstream).T @ _as_rows(hidden) if wants_weight else None
    if not any(wanted):
        return (None, grad_weight, *(None for _ in wanted))
    return (None, grad_weight, *_gradients(hidden, inputs, wanted, upstream @ weight))


def rowwise(function: Callable[..., Tensor], *inputs: Float[Tensor, "*lead d"]) -> Tensor:
    """`function(*inputs)` a block of rows at a time, without gradients."""
    rows = [_as_rows(x) for x in inputs]
    out = torch.empty_like(rows[0])
    steps = _steps(function, rows)
    for block in _blocks(out):
        if steps is None:
            out[block] = function(*(x[block] for x in rows))
        else:
            steps.forward(out[block], *(x[block] for x in rows))
    return out.view(inputs[0].shape)


def _rowwise_again(
    function: Callable[..., Tensor],
    inputs: Sequence[Float[Tensor, "*lead d"]],
    wanted: Sequence[bool],
    upstream: Float[Tensor, "rows d"],
) -> tuple[Float[Tensor, "rows d"], list[Tensor | None]]:
    """The function's result, and the gradients of its wanted inputs, a block of rows at a time.

    `upstream` may be overwritten: whoever calls this has no further use for it.
    """
    rows = [_as_rows(x) for x in inputs]
    hidden = torch.empty_like(upstream)
    steps = _steps(function, [*rows, upstream])
    if steps is not None and all(wanted):
        written = [*(torch.empty_like(x) for x in rows[:-1]), upstream]
        for block in _blocks(hidden):
            parts = [x[block] for x in rows]
            steps.backward(hidden[block], [g[block] for g in written], upstream[block], *parts)
        return hidden, [g.view_as(x) for g, x in zip(written, inputs, strict=True)]
    grads: list[Tensor | None] = [
        torch.empty_like(x) if w else None for x, w in zip(rows, wanted, strict=True)
    ]
    for block in _blocks(hidden):
        parts, out = _run_again(function, [x[block] for x in rows], wanted)
        hidden[block] = out.detach()
        if not any(wanted):
            continue
        for whole, part in zip(grads, _gradients(out, parts, wanted, upstream[block]), strict=True):
            if whole is not None and part is not None:
                whole[block] = part
    return hidden, [g if g is None else g.view_as(x) for g, x in zip(grads, inputs, strict=True)]


def _steps(function: Callable[..., Tensor], tensors: Sequence[Tensor]) -> WrittenOut | None:
    """The function's own steps, if it has any and nothing has to be converted on the way."""
    same = len({x.dtype for x in tensors}) == 1
    return _WRITTEN_OUT.get(function) if same else None


def _as_rows(x: Float[Tensor, "*lead d"]) -> Float[Tensor, "rows d"]:
    return x.reshape(-1, x.shape[-1])


def _blocks(rows: Float[Tensor, "rows d"]) -> Iterator[slice]:
    size = max(1, _BLOCK_NUMBERS // max(1, rows.shape[1]))
    for start in range(0, rows.shape[0], size):
        yield slice(start, start + size)


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
