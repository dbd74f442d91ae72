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
from trafo.models.evaluating import evaluating


@dataclass(frozen=True)
class Evaluation:
    """Sums over all predicted ids, and the metrics computed from them."""

    total_nats: float
    num_tokens: int
    num_bytes: int | None

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
    total, num_bytes = 0.0, 0
    with evaluating(model):
        for batch in batches(chosen, batch_size):
            nats, targets = _evaluate_batch(model, tokens, batch)
            total += nats
            if byte_lengths is not None:
                num_bytes += int(byte_lengths[targets].sum())
            if advance is not None:
                advance(targets.size)
    counted = sum(window.counted for window in chosen)
    return Evaluation(total, counted, None if byte_lengths is None else num_bytes)


@torch.inference_mode()
def _evaluate_batch(
    model: CausalLM, tokens: NDArray[np.integer], batch: Sequence[Window]
) -> tuple[float, NDArray[np.int64]]:
    """The summed loss of windows of one shape, and the ids that were predicted."""
    places = np.array([window.start for window in batch])[:, None] + np.arange(batch[0].length + 1)
    rows = tokens[places].astype(np.int64)
    _check_ids(rows, model.head_weight.shape[0])
    on_device = torch.from_numpy(rows).to(model.head_weight.device)
    skipped = batch[0].skipped
    states = model.hidden_states(on_device[:, :-1])[:, skipped:]
    targets = on_device[:, 1 + skipped :]
    loss = head_loss(model, states, targets, reduction="sum")
    return loss.item(), rows[:, 1 + skipped :]


def _check_ids(rows: NDArray[np.int64], vocab: int) -> None:
    largest = int(rows.max())
    if largest >= vocab:
        raise InputError(
            f"the text has the id {largest}, the model knows ids from 0 to {vocab - 1:,}",
            hint="encode it with the model's own tokenizer",
        )
