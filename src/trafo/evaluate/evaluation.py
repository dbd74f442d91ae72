"""Ids or sentence pairs -> cross-entropy loss, perplexity and bits per byte of a model.

loss = mean of -log p(id | ids before it in its window); perplexity = exp(loss);
bits per byte = sum of -log2 p over all ids / bytes of the text, comparable across vocabularies.

A long text is read in windows that fit a model's context, so that every id but the first is
predicted once. Window k reads the ids from k * stride on, as many as the context holds. All
predictions of the first window count. Of every later one the last `stride` count: the others were
counted before and only give context, at least context - stride ids.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from trafo.data.pair_batches import EncodedPairs, PairBatch
from trafo.data.pair_tokenizer import LEAD
from trafo.errors import InputError, require, require_at_least
from trafo.fast import head_loss
from trafo.models import CausalLM, SequenceModel
from trafo.models.base import evaluating
from trafo.optim import cross_entropy
from trafo.tokenizer.tokenizer import Tokenizer

_PAIR_BATCH_TOKENS = 4000


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
    windows = split_windows(len(tokens), context, context if stride is None else stride)
    if max_tokens is not None:
        windows = _spread_windows(windows, max_tokens)
    losses: list[float] = []
    num_bytes = 0
    with evaluating(model):
        for batch in _batch_windows(windows, batch_size):
            nats, targets = _evaluate_batch(model, tokens, batch)
            losses += nats
            if byte_lengths is not None:
                num_bytes += int(byte_lengths[targets].sum())
            if advance is not None:
                advance(targets.size)
    counts = [window.length - window.skipped for window in windows]
    return _sum_up(losses, counts, None if byte_lengths is None else num_bytes)


def evaluate_pairs(
    model: SequenceModel,
    pairs: EncodedPairs,
    *,
    byte_lengths: NDArray[np.int64] | None = None,
    max_tokens: int | None = None,
) -> Evaluation:
    """Predict all targets, or about `max_tokens` tokens of some, spread evenly over the pairs."""
    number = len(pairs)
    if max_tokens is not None:
        number = min(number, max(1, round(max_tokens * len(pairs) / pairs.num_targets)))
    rows = np.arange(number) * len(pairs) // number
    losses: list[float] = []
    counts: list[int] = []
    num_bytes = 0
    with evaluating(model):
        for batch in pairs.in_batches(rows, _PAIR_BATCH_TOKENS):
            losses += _pair_losses(model, pairs.batch(batch), pairs.padding_id)
            for row in batch:
                targets = pairs.target[row]
                counts.append(len(targets))
                if byte_lengths is not None:
                    num_bytes += int(byte_lengths[targets].sum()) - len(LEAD)
    return _sum_up(losses, counts, None if byte_lengths is None else num_bytes)


def count_token_bytes(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """Count the bytes of text of each id: 0 for special tokens, whose loss counts, and no token."""
    lengths = np.zeros(tokenizer.vocab_size, np.int64)
    special = set(tokenizer.special_tokens.values())
    for token_id, token in tokenizer.vocab.items():
        if token_id not in special:
            lengths[token_id] = len(token)
    return lengths


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


def _sum_up(losses: list[float], counts: list[int], num_bytes: int | None) -> Evaluation:
    return Evaluation(math.fsum(losses), sum(counts), num_bytes, standard_error(losses, counts))


class Window(NamedTuple):
    """Predicts the id after each of ids[start : start + length], without the first `skipped`."""

    start: int
    length: int
    skipped: int


def split_windows(num_ids: int, context_length: int, stride: int) -> list[Window]:
    """Split a text into windows, in order."""
    hint = f"it must be from 1 to the context, {context_length}"
    require(1 <= stride <= context_length, f"stride is {stride}", hint)
    inputs = num_ids - 1  # nothing follows the last id
    if inputs < 1:
        raise InputError(f"the text has {num_ids} ids", hint="it needs at least two")
    later = -(-max(0, inputs - context_length) // stride)
    return [
        Window(
            start=k * stride,
            length=min(context_length, inputs - k * stride),
            skipped=0 if k == 0 else context_length - stride,
        )
        for k in range(1 + later)
    ]


def _spread_windows(windows: Sequence[Window], max_tokens: int) -> list[Window]:
    """Choose windows spread evenly: about `max_tokens` predictions, at least one window."""
    require_at_least(1, max_tokens=max_tokens)
    each = max(window.length - window.skipped for window in windows[-2:])
    number = min(len(windows), max(1, max_tokens // each))
    return [windows[i * len(windows) // number] for i in range(number)]


def _batch_windows(windows: Sequence[Window], batch_size: int) -> Iterator[list[Window]]:
    """Batch consecutive windows of one shape, so that none needs padding."""
    require_at_least(1, batch_size=batch_size)
    for _, group in groupby(windows, key=lambda window: window[1:]):
        alike = list(group)
        for i in range(0, len(alike), batch_size):
            yield alike[i : i + batch_size]


@torch.inference_mode()
def _evaluate_batch(
    model: CausalLM, tokens: NDArray[np.integer], batch: Sequence[Window]
) -> tuple[list[float], NDArray[np.int64]]:
    """The summed loss of each of several windows of one shape, and the ids that were predicted."""
    places = np.array([window.start for window in batch])[:, None] + np.arange(batch[0].length + 1)
    rows = tokens[places].astype(np.int64)
    vocab, largest = model.head_weight.shape[0], int(rows.max())
    if largest >= vocab:
        raise InputError(
            f"the text has the id {largest}, the model knows ids from 0 to {vocab - 1:,}",
            hint="encode it with the model's own tokenizer",
        )
    on_device = torch.from_numpy(rows).to(model.head_weight.device)
    skipped = batch[0].skipped
    states = model.hidden_states(on_device[:, :-1])[:, skipped:]
    targets = on_device[:, 1 + skipped :]
    both = zip(states, targets, strict=True)
    losses = [head_loss(model, states, targets, reduction="sum") for states, targets in both]
    return torch.stack(losses).tolist(), rows[:, 1 + skipped :]


@torch.inference_mode()
def _pair_losses(model: SequenceModel, batch: PairBatch, padding_id: int) -> list[float]:
    """The summed loss of each pair."""
    source, target, expected = (ids.to(model.head_weight.device) for ids in batch)
    logits = model.decode(target, model.encode(source))
    losses = cross_entropy(logits, expected, ignore_id=padding_id, reduction="none")
    return [float(loss) for loss in losses.sum(-1)]
