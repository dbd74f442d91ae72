"""Encoded pairs -> batches by target tokens, of pairs of similar length (bucketing).

An epoch is cut into as many batches as its target tokens fill. Pairs are put in order of length,
pairs of the same length in a random order, so a batch needs little padding; then the batches are
shuffled. Batch t is a function of the seed and t alone: t divided by the batches of an epoch is the
epoch, the remainder is the batch in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from trafo.data.pair_tokenizer import Sentences
from trafo.errors import require

_SPREAD = 2
"""lengths of sources that count as the same: some padding for batches that differ by epoch"""


class PairBatch(NamedTuple):
    """Ids padded on the right: encoder input, decoder input and expected output."""

    source: Int[Tensor, "batch source"]
    target: Int[Tensor, "batch target"]
    """the end token, then the sentence: shifted right by one"""
    expected: Int[Tensor, "batch target"]
    """the sentence, then the end token"""


@dataclass(frozen=True, eq=False)
class EncodedPairs:
    """Pairs of sentences as ids, each ending with its end token."""

    source: Sentences
    target: Sentences
    padding_id: int

    def __len__(self) -> int:
        return len(self.target)

    @property
    def num_targets(self) -> int:
        """Target tokens, end tokens included."""
        return len(self.target.ids)

    def batch(self, rows: NDArray[np.int64], among: NDArray[np.int64] | None = None) -> PairBatch:
        """These pairs, padded to the longest of them, or to the longest `among` others."""
        among = rows if among is None else among
        expected = [self.target[row] for row in rows]
        shifted = [np.concatenate([ids[-1:], ids[:-1]]) for ids in expected]
        sources = [self.source[row] for row in rows]
        source, target = (int(side.lengths[among].max()) for side in (self.source, self.target))
        return PairBatch(
            padded(sources, self.padding_id, source),
            padded(shifted, self.padding_id, target),
            padded(expected, self.padding_id, target),
        )

    def in_batches(self, rows: NDArray[np.int64], tokens: int) -> list[NDArray[np.int64]]:
        """Some of the pairs, in order of length, in batches of about `tokens` target tokens."""
        order = rows[np.lexsort((self.source.lengths[rows], self.target.lengths[rows]))]
        return _cut(order, self.target.lengths[order], tokens)


class PairSampler:
    """The batches of a run, by seed and step."""

    def __init__(self, pairs: EncodedPairs, batch_tokens: int) -> None:
        """Batches of about `batch_tokens` target tokens."""
        longest = int(pairs.target.lengths.max())
        require(
            batch_tokens >= longest,
            f"batch_tokens is {batch_tokens:,}, the longest target has {longest:,} tokens",
            f"choose at least {longest}",
        )
        self.pairs = pairs
        self.num_batches = max(1, pairs.num_targets // batch_tokens)
        """in an epoch"""
        self._shuffled: tuple[tuple[int, int], list[NDArray[np.int64]]] = ((0, -1), [])

    def rows(self, seed: int, step: int) -> NDArray[np.int64]:
        """The pairs of a step."""
        epoch, place = divmod(step, self.num_batches)
        if self._shuffled[0] != (seed, epoch):
            self._shuffled = (seed, epoch), self._shuffle(seed, epoch)
        return self._shuffled[1][place]

    def batch(
        self, seed: int, step: int, part: int = 0, num_parts: int = 1
    ) -> tuple[PairBatch, int]:
        """A part of the batch of a step, and the target tokens of the whole batch.

        All parts are padded to the longest pair of the batch, so dropout, which is drawn for each
        pair, does not depend on how many there are.
        """
        rows = self.rows(seed, step)
        num_targets = int(self.pairs.target.lengths[rows].sum())
        mine = rows[part::num_parts]
        if len(mine):
            return self.pairs.batch(mine, among=rows), num_targets
        # More parts than pairs: something to compute on, of which nothing counts.
        batch = self.pairs.batch(rows[:1])
        nothing = torch.full_like(batch.expected, self.pairs.padding_id)
        return batch._replace(expected=nothing), num_targets

    def _shuffle(self, seed: int, epoch: int) -> list[NDArray[np.int64]]:
        """The batches of an epoch in their order."""
        generator = np.random.default_rng([seed, epoch])
        source, target = self.pairs.source.lengths, self.pairs.target.lengths
        order = np.lexsort((generator.random(len(target)), source // _SPREAD, target))
        # Every batch gets an equal share of the target tokens, so their number is the same in
        # every epoch, whatever the order. None is empty: no sentence is longer than a share.
        batches = _cut(order, target[order], self.pairs.num_targets / self.num_batches)
        return [batches[i] for i in generator.permutation(self.num_batches)]


def _cut(
    rows: NDArray[np.int64], lengths: NDArray[np.int64], tokens: float
) -> list[NDArray[np.int64]]:
    """Neighbours together, `tokens` in each batch, give or take a sentence."""
    batch_of = ((np.cumsum(lengths) - lengths) / tokens).astype(np.int64)
    return np.split(rows, np.flatnonzero(np.diff(batch_of)) + 1)


def padded(
    sentences: Sequence[NDArray[np.int32]], padding_id: int, width: int | None = None
) -> Int[Tensor, "batch seq"]:
    """Fill rows up on the right to `width`, by default to the longest."""
    width = max(map(len, sentences)) if width is None else width
    rows = np.full((len(sentences), width), padding_id, np.int64)
    for row, ids in zip(rows, sentences, strict=True):
        row[: len(ids)] = ids
    return torch.from_numpy(rows)
