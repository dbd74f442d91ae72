"""Sentence pairs -> cross-entropy loss of a translation model on the targets."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray

from trafo.data.pair_batches import EncodedPairs, PairBatch
from trafo.data.pair_tokenizer import LEAD
from trafo.evaluate.evaluation import Evaluation, standard_error
from trafo.models.base import evaluating
from trafo.models.translator import Translator
from trafo.optim import cross_entropy

_BATCH_TOKENS = 4000


def evaluate_pairs(
    model: Translator,
    pairs: EncodedPairs,
    *,
    byte_lengths: NDArray[np.int64] | None = None,
    max_tokens: int | None = None,
) -> Evaluation:
    """Loss on all targets, or on about `max_tokens` tokens, spread evenly over the pairs."""
    rows = _spread(pairs, max_tokens)
    losses: list[float] = []
    counts: list[int] = []
    num_bytes = 0
    with evaluating(model):
        for batch in pairs.in_batches(rows, _BATCH_TOKENS):
            losses += _summed_losses(model, pairs.batch(batch), pairs.padding_id)
            for row in batch:
                targets = pairs.target[row]
                counts.append(len(targets))
                if byte_lengths is not None:
                    num_bytes += int(byte_lengths[targets].sum()) - len(LEAD)
    return Evaluation(
        math.fsum(losses),
        sum(counts),
        None if byte_lengths is None else num_bytes,
        standard_error(losses, counts),
    )


def _spread(pairs: EncodedPairs, max_tokens: int | None) -> NDArray[np.int64]:
    """Rows spread evenly over the pairs, at least one."""
    number = len(pairs)
    if max_tokens is not None:
        number = min(number, max(1, round(max_tokens * len(pairs) / pairs.num_targets)))
    return np.arange(number) * len(pairs) // number


@torch.inference_mode()
def _summed_losses(model: Translator, batch: PairBatch, padding_id: int) -> list[float]:
    """The loss of each pair."""
    source, target, expected = (ids.to(model.head_weight.device) for ids in batch)
    logits = model.decode(target, model.encode(source))  # type: ignore[arg-type]
    losses = cross_entropy(logits, expected, ignore_id=padding_id, reduction="none")
    return [float(loss) for loss in losses.sum(-1)]
