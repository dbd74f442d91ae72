"""Merging when the words do not fit into memory: in rounds, with the same result.

A pair's count never rises, and new pairs arise only inside words that a merge changes. So as long
as the best pair occurs `least` times or more, a word all of whose pairs are rarer is never
touched and need not be loaded. Each round

 1. goes through all words on disk, cut into symbols by the merges known so far, and adds up
    their pairs in buckets: pairs may share one, so a bucket is an upper bound;
 2. chooses the smallest `least` for which the words with a bucket that full fit into memory;
 3. loads just these words and merges until the best pair is rarer than that.

Where a round finds few merges, as in text without spaces, whose words are nearly all different,
`scanning.py` goes on if the words fit into memory as bare symbols. If not even the words of the
best pair fit, `passes.py` finds the next few merges.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator

import numpy as np

from trafo.errors import InputError
from trafo.runtime.sizes import format_size
from trafo.tokenizer.counting.counter import WordCounts, concatenate_counts
from trafo.tokenizer.kernels.arrays import Int64s
from trafo.tokenizer.kernels.symbols import best_pairs, count_in_buckets
from trafo.tokenizer.merging.known_merges import KnownMerges, Merge, Partitions
from trafo.tokenizer.merging.merger import Merger
from trafo.tokenizer.merging.passes import merges_by_passing
from trafo.tokenizer.merging.scanning import merge_by_scanning, scanning_memory

_STEPS_PER_OCTAVE = 16  # how finely `least` is chosen
_NUM_STEPS = 64 * _STEPS_PER_OCTAVE

# Measured: what a Merger takes for each byte of a word, for each merge, and in any case.
_BYTES_PER_BYTE = 64
_BYTES_PER_MERGE = 512
_FIXED_BYTES = 8 << 20

_FEW = 16  # a round that finds fewer than a sixteenth of all merges does not pay


def merging_memory(num_bytes: int, num_words: int, num_merges: int) -> int:
    """About how much memory merging takes with all words at once."""
    return _BYTES_PER_BYTE * (num_bytes + num_words) + _BYTES_PER_MERGE * num_merges + _FIXED_BYTES


def merge_in_rounds(
    partitions: Partitions,
    num_merges: int,
    max_memory: int,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Merge]:
    """The merges of words that come in partitions, which are read again for every pass."""
    merges: list[Merge] = []
    room = 3 * max_memory // 4 - merging_memory(0, 0, num_merges)
    room_to_scan = _room_to_scan(partitions, num_merges, max_memory)
    while len(merges) < num_merges:
        known = KnownMerges(merges)
        buckets = np.zeros(1 << max(10, (max_memory // 128).bit_length() - 1), np.int64)
        for words, symbols, ends in known.split(partitions):
            count_in_buckets(symbols, ends, words.counts, known.lengths, buckets)
        if not buckets.any():  # no word has a pair left
            break
        found: list[Merge] = []
        least = _choose_least(partitions, known, buckets, room)
        if least:
            active = _active_words(partitions, known, buckets, least)
            found = Merger(active, num_merges, known).run(advance, least)[len(merges) :]
            del active
            if least == 1:
                return merges + found
        if len(found) * _FEW < num_merges and room_to_scan:
            merges += found
            merges += merge_by_scanning(partitions, merges, num_merges, room_to_scan, advance)
            room_to_scan = 0  # whatever is left takes passes
            continue
        if not found:
            most = num_merges - len(merges)
            found = merges_by_passing(partitions, known, buckets, max_memory // 8)[:most]
            advance(len(found))
        if not found:
            raise InputError(
                f"{format_size(max_memory)} of memory are not enough to merge these words",
                hint=f"allow {format_size(2 * max_memory)}",
            )
        merges += found
    return merges


def _room_to_scan(partitions: Partitions, num_merges: int, max_memory: int) -> int:
    """Memory for counting pairs beside all words as symbols; 0: too little."""
    taken = scanning_memory(partitions, num_merges) + _BYTES_PER_MERGE * num_merges
    free = 3 * max_memory // 4 - taken
    return free if free > max_memory // 8 else 0


def _choose_least(partitions: Partitions, known: KnownMerges, buckets: Int64s, room: int) -> int:
    """The smallest count for which all words with so frequent a pair fit; 0 if there is none."""
    size_of_step = np.zeros(_NUM_STEPS, np.int64)
    for words, best in _best_pairs(partitions, known, buckets):
        sizes = np.diff(words.ends, prepend=0) + 1
        size_of_step += np.bincount(_step(best), sizes, _NUM_STEPS).astype(np.int64)
    size_of_step[0] = 0  # words of one symbol have no pair
    steps = np.flatnonzero(size_of_step)
    size_from_step = np.cumsum(size_of_step[::-1])[::-1]
    fitting = steps[_BYTES_PER_BYTE * size_from_step[steps] <= room]
    if not len(fitting):
        return 0
    return 1 if fitting[0] == steps[0] else _least_of(int(fitting[0]))


def _step(counts: Int64s) -> Int64s:
    """Counts on a logarithmic scale; 0 for 0."""
    exact = np.log2(np.maximum(counts, 1)) * _STEPS_PER_OCTAVE + 1
    return np.where(counts > 0, exact, 0).astype(np.int64)


def _least_of(step: int) -> int:
    """The smallest count on a step, or above it if there is none."""
    counts = range(1 << 62)
    return bisect_left(counts, step, key=lambda count: int(_step(np.array([count]))[0]))


def _active_words(
    partitions: Partitions, known: KnownMerges, buckets: Int64s, least: int
) -> WordCounts:
    """The words with a pair that may occur `least` times."""
    return concatenate_counts(
        words.where(best >= least) for words, best in _best_pairs(partitions, known, buckets)
    )


def _best_pairs(
    partitions: Partitions, known: KnownMerges, buckets: Int64s
) -> Iterator[tuple[WordCounts, Int64s]]:
    """All words, and for each an upper bound on how often any of its pairs occurs in all words."""
    for words, symbols, ends in known.split(partitions):
        best = np.empty(len(words), np.int64)
        best_pairs(symbols, ends, known.lengths, buckets, best)
        yield words, best
