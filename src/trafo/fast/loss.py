"""Cross-entropy without all logits at once, for accelerated models.

Logits are the largest tensor of a training step: (tokens, vocabulary). Here they exist for a chunk
of positions at a time.
"""

from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from trafo.fast.accelerate import is_accelerated
from trafo.fast.mixed import is_mixed, narrow
from trafo.models import SequenceModel
from trafo.nn.precision import at_least_float32
from trafo.optim.loss import check_smoothing, counted_targets, cross_entropy

# Logits of one chunk: large enough for fast products, small enough to stay near the processor.
_CHUNK_NUMBERS = 2**22


def head_loss(
    model: SequenceModel,
    states: Float[Tensor, "*lead d_model"],
    targets: Int[Tensor, "*lead"],
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    reduction: Literal["mean", "sum"] = "mean",
) -> Float[Tensor, ""]:
    """`cross_entropy(model.logits(states), targets)`, in chunks if the model is accelerated."""
    has_bias = model.lm_head is not None and model.lm_head.bias is not None
    if is_accelerated(model) and not has_bias:
        return chunked_cross_entropy(
            states,
            model.head_weight,
            targets,
            ignore_id=ignore_id,
            label_smoothing=label_smoothing,
            reduction=reduction,
        )
    return cross_entropy(
        model.logits(states),
        targets,
        ignore_id=ignore_id,
        label_smoothing=label_smoothing,
        reduction=reduction,
    )


def chunked_cross_entropy(
    hidden: Float[Tensor, "*lead d_model"],
    head_weight: Float[Tensor, "vocab d_model"],
    targets: Int[Tensor, "*lead"],
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    reduction: Literal["mean", "sum"] = "mean",
    chunk_rows: int | None = None,
) -> Float[Tensor, ""]:
    """`cross_entropy(hidden @ head_weight.T, targets)` without ever holding all logits.

    Loss and both gradients of `chunk_rows` positions are computed before the next ones.
    """
    check_smoothing(label_smoothing)
    rows = hidden.reshape(-1, hidden.shape[-1])
    flat = targets.reshape(-1)
    counted = counted_targets(flat, ignore_id)
    total: Tensor = _ChunkedLoss.apply(  # type: ignore[no-untyped-call]
        rows,
        head_weight,
        flat.masked_fill(~counted, 0),
        counted,
        label_smoothing,
        chunk_rows or _even_chunks(len(rows), head_weight.shape[0]),
    )
    return total if reduction == "sum" else total / counted.sum().clamp(min=1)


def _even_chunks(num_rows: int, vocab: int) -> int:
    """Rows of a chunk, such that no short one is left over at the end."""
    most = max(1, _CHUNK_NUMBERS // vocab)
    chunks = max(1, -(-num_rows // most))
    return max(1, -(-num_rows // chunks))


class _ChunkedLoss(torch.autograd.Function):
    """The summed loss. Its gradients are ready when the loss is: backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Float[Tensor, "rows d_model"],
        weight: Float[Tensor, "vocab d_model"],
        targets: Int[Tensor, " rows"],
        counted: Bool[Tensor, " rows"],
        smoothing: float,
        chunk_rows: int,
    ) -> Float[Tensor, ""]:
        wants_hidden, wants_weight = ctx.needs_input_grad[:2]
        mixed = is_mixed()
        factors = weight.bfloat16() if mixed else weight
        grad_hidden = torch.empty_like(hidden) if wants_hidden else None
        grad_weight = torch.zeros_like(weight) if wants_weight else None
        total = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        for start in range(0, len(hidden), chunk_rows):
            part = slice(start, start + chunk_rows)
            rows = narrow(hidden[part], mixed)
            logits = (rows @ factors.T)[: len(targets[part])]
            losses, slopes = _loss_and_gradient(logits, targets[part], counted[part], smoothing)
            total += losses
            grad_logits = narrow(slopes) if mixed else slopes.to(logits.dtype)
            if grad_hidden is not None:
                grad_hidden[part] = (grad_logits @ factors)[: len(targets[part])]
            if grad_weight is not None:
                _add_product(grad_weight, grad_logits.T, rows)
            del logits, slopes, grad_logits  # before the next chunk takes their place, not after
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [
            None if grad is None else grad * upstream.to(grad.dtype) for grad in ctx.saved_tensors
        ]
        return (*scaled, None, None, None, None)


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a b, in one pass over memory unless numbers must be converted."""
    if a.dtype == total.dtype:
        total.addmm_(a, b)
    else:
        total += a @ b


def _loss_and_gradient(
    logits: Float[Tensor, "rows vocab"],
    targets: Int[Tensor, " rows"],
    counted: Bool[Tensor, " rows"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, "rows vocab"]]:
    """Summed loss and d loss / d logits = softmax(x) - (1 - e) onehot(t) - e/C, in place."""
    wide = at_least_float32(logits)
    shifted = wide.sub_(wide.amax(-1, keepdim=True))
    spread = (1.0 - smoothing) * shifted.gather(-1, targets[:, None])[:, 0]
    if smoothing:
        spread += smoothing * shifted.mean(-1)
    powers = shifted.exp_()
    sums = powers.sum(-1, keepdim=True)
    losses = sums.log()[:, 0] - spread
    counts = counted[:, None].to(wide.dtype)  # 0 for ignored rows, which get no gradient
    gradient = powers.mul_(counts / sums)
    if smoothing:
        gradient.sub_(counts * (smoothing / wide.shape[-1]))
    gradient.scatter_add_(-1, targets[:, None], counts * (smoothing - 1.0))
    return torch.where(counted, losses, 0.0).sum(), gradient
