"""Logits -> loss: how surprised the model is by what came next.

loss = -log softmax(x)_t = log sum_j exp(x_j) - x_t. The largest logit is first subtracted from all,
which changes nothing (it cancels), so that exp cannot overflow and no digits are lost.

Label smoothing (Szegedy et al., 2016) spreads a share e of the target over all C classes:
log sum exp(x) - (1 - e) x_t - e mean(x).
"""

import math
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.autograd.function import once_differentiable

from trafo.errors import ConfigError, InputError

Reduction = Literal["mean", "sum", "none"]

# Logits of one chunk: large enough for fast products, small enough to stay near the processor.
_CHUNK_NUMBERS = 2**23


def cross_entropy(
    logits: Float[Tensor, "*lead vocab"],
    targets: Int[Tensor, "*lead"],
    *,
    ignore_id: int | None = None,
    label_smoothing: float = 0.0,
    reduction: Reduction = "mean",
) -> Float[Tensor, ""] | Float[Tensor, "*lead"]:
    """Cross-entropy in nats, in float32 at least; targets equal to `ignore_id` do not count.

    The mean is over the targets that count; of none of them it is 0.
    """
    _check_smoothing(label_smoothing)
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
    counted = _counted(targets, ignore_id)
    chosen = targets.masked_fill(~counted, 0)
    shifted = wide - wide.amax(-1, keepdim=True).detach()
    right = shifted.gather(-1, chosen[..., None])[..., 0]
    losses = shifted.exp().sum(-1).log() - (1.0 - label_smoothing) * right
    if label_smoothing:
        losses = losses - label_smoothing * shifted.mean(-1)
    losses = torch.where(counted, losses, 0.0)
    if reduction == "none":
        return losses
    return losses.sum() if reduction == "sum" else losses.sum() / counted.sum().clamp(min=1)


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

    Logits are the largest tensor of a training step. Here they live for `chunk_rows` positions at a
    time: loss and both gradients of a chunk are computed before the next one takes its place.
    """
    _check_smoothing(label_smoothing)
    rows = hidden.reshape(-1, hidden.shape[-1])
    flat = targets.reshape(-1)
    counted = _counted(flat, ignore_id)
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
        grad_hidden = torch.empty_like(hidden) if wants_hidden else None
        grad_weight = torch.zeros_like(weight) if wants_weight else None
        total = hidden.new_zeros((), dtype=torch.promote_types(hidden.dtype, torch.float32))
        for start in range(0, hidden.shape[0], chunk_rows):
            part = slice(start, start + chunk_rows)
            losses, grad_logits = _loss_and_gradient(
                hidden[part] @ weight.T, targets[part], counted[part], smoothing
            )
            total += losses
            if grad_hidden is not None:
                grad_hidden[part] = grad_logits @ weight
            if grad_weight is not None:
                grad_weight.addmm_(grad_logits.T, hidden[part])
            del grad_logits  # before the next chunk takes its place, not after
        ctx.save_for_backward(grad_hidden, grad_weight)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        scaled = [
            None if grad is None else grad * upstream.to(grad.dtype) for grad in ctx.saved_tensors
        ]
        return (*scaled, None, None, None, None)


def _loss_and_gradient(
    logits: Float[Tensor, "rows vocab"],
    targets: Int[Tensor, " rows"],
    counted: Bool[Tensor, " rows"],
    smoothing: float,
) -> tuple[Float[Tensor, ""], Float[Tensor, "rows vocab"]]:
    """Summed loss and d loss / d logits = softmax(x) - (1 - e) onehot(t) - e/C, in place."""
    wide = logits.to(torch.promote_types(logits.dtype, torch.float32))
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
    return torch.where(counted, losses, 0.0).sum(), gradient.to(logits.dtype)


def perplexity(loss: float) -> float:
    """exp(loss): the number of equally likely tokens the model hesitates between."""
    try:
        return math.exp(loss)
    except OverflowError:
        return math.inf


def bits_per_byte(total_loss: float, num_bytes: int) -> float:
    """Summed loss in nats over a text of `num_bytes` bytes: what different vocabularies share.

    The sum over all tokens, not the mean: then nothing depends on how many tokens there were.
    """
    if num_bytes < 1:
        raise InputError(f"the text has {num_bytes} bytes", hint="bits per byte need at least one")
    return total_loss / (math.log(2.0) * num_bytes)


def _counted(targets: Int[Tensor, "*lead"], ignore_id: int | None) -> Bool[Tensor, "*lead"]:
    if ignore_id is None:
        return torch.ones_like(targets, dtype=torch.bool)
    return targets != ignore_id


def _check_smoothing(label_smoothing: float) -> None:
    if not 0.0 <= label_smoothing <= 1.0:
        raise ConfigError(f"label_smoothing is {label_smoothing}", hint="choose from 0 to 1")
