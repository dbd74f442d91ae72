"""Merging when the words do not fit into memory: in rounds, with the same result.

A pair's count never rises, and new pairs arise only inside words that a merge changes. So as long
as the best pair occurs `least` times or more, a word all of whose pairs are rarer is never
touched and need not be there. Each round

 1. goes through all words on disk, cut into symbols by the merges known so far, and adds up
    their pairs in buckets: pairs may share one, so a bucket is an upper bound;
 2. chooses the smallest `least` for which the words with a bucket that full fit into memory;
 3. loads just these words and merges until the best pair is rarer than that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.runtime.sizes import format_size
from trafo.tokenizer.count import WordCounts
from trafo.tokenizer.kernels.segment import gather_words
from trafo.tokenizer.merger import Merge, Merger
from trafo.tokenizer.segment import Segmenter

# What merging takes for each byte of a word: cells, places, pairs and heap while they grow.
BYTES_PER_BYTE = 100

_STEPS_PER_OCTAVE = 4  # how finely `least` is chosen
_NUM_STEPS = 64 * _STEPS_PER_OCTAVE

Parts = Callable[[], Iterable[WordCounts]]


def merge_in_rounds(
    parts: Parts,
    num_merges: int,
    max_memory: int,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Merge]:
    """The merges of words that come in parts; `parts` is called for every pass over them."""
    merges: list[Merge] = []
    num_buckets = 1 << max(10, (max_memory // 64).bit_length() - 1)
    while len(merges) < num_merges:
        segmenter = Segmenter(merges)
        buckets = np.zeros(num_buckets, np.int64)
        for words in parts():
            segmenter.add_pairs(words, buckets)
        least, cost = _choose_least(parts, segmenter, buckets, max_memory // 2)
        if least == 0:  # no word has a pair left
            break
        if cost > max_memory:
            raise _too_little(max_memory, cost)
        active = _active_words(parts, segmenter, buckets, least)
        found = Merger(active, num_merges, merges).run(advance, least)
        if least == 1:
            return found
        if len(found) == len(merges):
            raise _too_little(max_memory, cost)
        merges = found
    return merges


def _too_little(max_memory: int, cost: int) -> InputError:
    return InputError(
        f"{format_size(max_memory)} of memory are too little to merge these words",
        hint=f"allow at least {format_size(2 * cost)}",
    )


def _choose_least(
    parts: Parts, segmenter: Segmenter, buckets: NDArray[np.int64], most_memory: int
) -> tuple[int, int]:
    """The smallest count for which all words with so frequent a pair fit, and what they take."""
    cost_of_step = np.zeros(_NUM_STEPS, np.int64)
    for words in parts():
        best = segmenter.best_pairs(words, buckets)
        sizes = np.diff(words.ends, prepend=0) + 1
        cost_of_step += np.bincount(_step(best), sizes, _NUM_STEPS).astype(np.int64)
    cost_of_step *= BYTES_PER_BYTE
    cost_of_step[0] = 0  # words of one symbol have no pair
    steps = np.flatnonzero(cost_of_step)
    if not len(steps):
        return 0, 0
    cost_from_step = np.cumsum(cost_of_step[::-1])[::-1]
    fitting = steps[cost_from_step[steps] <= most_memory]
    step = int(fitting[0]) if len(fitting) else int(steps[-1])
    if step == steps[0]:
        return 1, int(cost_from_step[step])
    return _least_of(step), int(cost_from_step[step])


def _step(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Counts on a logarithmic scale; 0 for 0."""
    exact = np.log2(np.maximum(counts, 1)) * _STEPS_PER_OCTAVE + 1
    return np.where(counts > 0, exact, 0).astype(np.int64)


def _least_of(step: int) -> int:
    """The smallest count on a step."""
    low = int(2 ** ((step - 1) / _STEPS_PER_OCTAVE)) - 1
    around = np.arange(max(1, low - 1), low + 4 + low // 2, dtype=np.int64)
    return int(around[_step(around) >= step][0])


def _active_words(
    parts: Parts, segmenter: Segmenter, buckets: NDArray[np.int64], least: int
) -> WordCounts:
    """The words with a pair that may occur `least` times."""
    texts, ends, counts = [], [], []
    for words in parts():
        chosen = np.flatnonzero(segmenter.best_pairs(words, buckets) >= least)
        sizes = np.diff(words.ends, prepend=0)[chosen]
        texts.append(np.empty(int(sizes.sum()), np.uint8))
        gather_words(words.text, words.ends, chosen, texts[-1], np.empty(len(chosen), np.int64))
        ends.append(sizes)
        counts.append(words.counts[chosen])
    text = np.concatenate(texts)
    text.flags.writeable = False
    return WordCounts(text, np.cumsum(np.concatenate(ends)), np.concatenate(counts))
