"""Ids -> cross-entropy loss, perplexity and bits per byte of a model.

loss = mean of -log p(id | ids before it in its window); perplexity = exp(loss);
bits per byte = sum of -log2 p over all ids / bytes of the text.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.evaluate.windows import Window, batches, spread, windows
from trafo.fast import head_loss
from trafo.models import CausalLM
from trafo.models.base import evaluating


@dataclass(frozen=True)
class Evaluation:
    """Sums over all predicted ids, and the metrics computed from them."""

    total_nats: float
    num_tokens: int
    num_bytes: int | None
    standard_error: float | None = None
    """of the loss; None where there are not at least two windows or sentences"""

    @property
    def loss(self) -> float:
        """Cross-entropy in nats per token."""
        return self.total_nats / self.num_tokens

    @property
    def perplexity(self) -> float:
        """exp(loss): as uncertain as a choice between that many equally likely tokens."""
        try:
            return math.exp(self.loss)
        except OverflowError:
            return math.inf

    @property
    def bits_per_byte(self) -> float | None:
        """Comparable across tokenizers: a sum does not depend on the number of tokens.

        None if the number of bytes is unknown or 0.
        """
        return self.total_nats / (math.log(2.0) * self.num_bytes) if self.num_bytes else None


def standard_error(nats: Sequence[float], counts: Sequence[int]) -> float | None:
    """Of the mean loss, from the summed losses of windows or sentences and their token counts.

    Tokens of one window are not independent, different windows nearly are: what varies is a ratio
    of sums over windows (linearised, as for a cluster sample).
    """
    sums, sizes = np.array(nats), np.array(counts)
    if len(sums) < 2:
        return None
    deviations = sums - sizes * (sums.sum() / sizes.sum())
    variance = float((deviations**2).sum()) * len(sums) / (len(sums) - 1)
    return math.sqrt(variance) / int(sizes.sum())


def evaluate_ids(
    model: CausalLM,
    ids: NDArray[np.integer] | Sequence[int],
    *,
    context_length: int | None = None,
    stride: int | None = None,
    batch_size: int = 8,
    byte_lengths: NDArray[np.int64] | None = None,
    max_tokens: int | None = None,
    advance: Callable[[int], object] | None = None,
) -> Evaluation:
    """Predict every id but the first once, in windows of `context_length` (the model's) ids.

    A `stride` smaller than the context gives each prediction more context, at a higher cost.
    `max_tokens` limits the predictions, in windows spread evenly over the ids.
    `advance` is called after each batch with its number of predictions.
    """
    tokens = np.asarray(ids)
    longest = model.context_length
    context = longest if context_length is None else min(context_length, longest)
    chosen = windows(len(tokens), context, context if stride is None else stride)
    if max_tokens is not None:
        chosen = spread(chosen, max_tokens)
    losses: list[float] = []
    num_bytes = 0
    with evaluating(model):
        for batch in batches(chosen, batch_size):
            nats, targets = _evaluate_batch(model, tokens, batch)
            losses += nats
            if byte_lengths is not None:
                num_bytes += int(byte_lengths[targets].sum())
            if advance is not None:
                advance(targets.size)
    counts = [window.counted for window in chosen]
    return Evaluation(
        math.fsum(losses),
        sum(counts),
        None if byte_lengths is None else num_bytes,
        standard_error(losses, counts),
    )


@torch.inference_mode()
def _evaluate_batch(
    model: CausalLM, tokens: NDArray[np.integer], batch: Sequence[Window]
) -> tuple[list[float], NDArray[np.int64]]:
    """The summed loss of each of several windows of one shape, and the ids that were predicted."""
    places = np.array([window.start for window in batch])[:, None] + np.arange(batch[0].length + 1)
    rows = tokens[places].astype(np.int64)
    _check_ids(rows, model.head_weight.shape[0])
    on_device = torch.from_numpy(rows).to(model.head_weight.device)
    skipped = batch[0].skipped
    states = model.hidden_states(on_device[:, :-1])[:, skipped:]
    targets = on_device[:, 1 + skipped :]
    both = zip(states, targets, strict=True)
    losses = [head_loss(model, states, targets, reduction="sum") for states, targets in both]
    return torch.stack(losses).tolist(), rows[:, 1 + skipped :]


def _check_ids(rows: NDArray[np.int64], vocab: int) -> None:
    largest = int(rows.max())
    if largest >= vocab:
        raise InputError(
            f"the text has the id {largest}, the model knows ids from 0 to {vocab - 1:,}",
            hint="encode it with the model's own tokenizer",
        )
