"""Word counts -> merges: makes and grows the arrays that `kernels/merge.py` works on."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.tokenizer.counting import WordCounts
from trafo.tokenizer.kernels.arrays import NUM_BYTES
from trafo.tokenizer.kernels.merge import (
    DONE,
    MERGES,
    NONE,
    PAIRS_FULL,
    SYMBOLS,
    MergeArrays,
    NewPairs,
    Places,
    lay_out,
    list_places,
    merge_best_pairs,
)
from trafo.tokenizer.kernels.pair_heap import Heap, Pairs, Symbols, fill_heap

Merge = tuple[bytes, bytes]

_MERGES_AT_ONCE = 500  # between two reports of progress
_NUM_BYTE_PAIRS = NUM_BYTES * NUM_BYTES
_MOST_CELLS = 1 << 32  # places are uint32


def merging_memory(num_bytes: int, num_words: int, num_merges: int) -> int:
    """About how much memory a `Merger` takes for so many words and their bytes, as measured."""
    return 64 * (num_bytes + num_words) + 512 * num_merges + (8 << 20)


class Merger:
    """Finds the merges of words, all of which it holds in memory."""

    def __init__(self, words: WordCounts, most_merges: int) -> None:
        num_cells = len(words.text) + len(words) + 1
        if num_cells >= _MOST_CELLS:
            raise InputError(
                f"{len(words):,} distinct words of {len(words.text):,} bytes are too many to merge",
                hint="use a pattern that splits the text into shorter words",
            )
        self._most = most_merges
        symbols, pairs = _byte_symbols(most_merges), _new_pairs(_NUM_BYTE_PAIRS)
        cells = np.empty(2 * num_cells, np.int32)
        pair_ids = np.full(_NUM_BYTE_PAIRS, NONE, np.int32)
        num_pairs = lay_out(words.text, words.ends, words.counts, cells, pair_ids, pairs)
        num_places = int(pairs.size.sum())
        new_pairs = _new_pair_buffers(int(pairs.size.max()), NUM_BYTES + most_merges + 1)
        places = Places(np.empty(3 * num_places, np.uint32), np.empty(3 * num_places, np.int64))
        list_places(cells, words.counts, pairs, num_pairs, places)
        heap = Heap(np.empty(len(pairs.left), np.int64), np.empty_like(pairs.left))
        heap_size = fill_heap(heap, num_pairs, pairs, symbols)
        merges = np.empty(2 * most_merges, np.int32)
        state = np.array([0, num_pairs, num_places, heap_size, NUM_BYTES], np.int64)
        self._arrays = MergeArrays(cells, places, pairs, heap, symbols, new_pairs, merges, state)

    def run(self, advance: Callable[[int], None] = lambda _: None) -> list[Merge]:
        """All merges up to the number asked for, or until no pair is left."""
        state = self._arrays.state
        while True:
            done = int(state[MERGES])
            target = min(self._most, done + _MERGES_AT_ONCE)
            reason = merge_best_pairs(target, self._arrays)
            now = int(state[MERGES])
            advance(now - done)
            if reason != DONE:
                self._grow(reason)
            elif now < target or now == self._most:
                return self._result()

    def _grow(self, reason: int) -> None:
        full: list[NDArray[Any]] = [self._arrays.symbols.text]
        if reason == PAIRS_FULL:
            full = [*self._arrays.pairs, *self._arrays.heap]
        for array in full:  # in place: the system moves a large one without a second copy
            array.resize(2 * array.size, refcheck=False)

    def _result(self) -> list[Merge]:
        symbols, state = self._arrays.symbols, self._arrays.state
        text = symbols.text.tobytes()
        tokens = [text[a:b] for a, b in pairwise(symbols.offset[: state[SYMBOLS] + 1].tolist())]
        pairs = self._arrays.merges[: 2 * state[MERGES]].reshape(-1, 2).tolist()
        return [(tokens[left], tokens[right]) for left, right in pairs]


def _new_pairs(capacity: int) -> Pairs:
    left, right = (np.zeros(capacity, np.int32) for _ in range(2))
    count, first, size = (np.zeros(capacity, np.int64) for _ in range(3))
    return Pairs(left, right, count, first, size)


def _new_pair_buffers(longest: int, most_symbols: int) -> NewPairs:
    """`longest`: the most places of any pair, each of which makes at most two."""
    by_left, by_right = (np.full(most_symbols, NONE, np.int32) for _ in range(2))
    return NewPairs(
        by_left,
        by_right,
        np.empty(2 * longest, np.int32),
        np.empty(2 * longest, np.uint32),
        np.empty(2 * longest, np.int64),
    )


def _byte_symbols(most_merges: int) -> Symbols:
    """The 256 bytes as symbols, with room for more."""
    capacity = NUM_BYTES + most_merges + 2
    symbols = Symbols(
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.uint64),
        np.zeros(capacity, np.int64),
        np.zeros(16 * capacity, np.uint8),
    )
    symbols.length[:NUM_BYTES] = 1
    symbols.head[:NUM_BYTES] = np.arange(NUM_BYTES, dtype=np.uint64) << np.uint64(56)
    symbols.offset[: NUM_BYTES + 1] = np.arange(NUM_BYTES + 1)
    symbols.text[:NUM_BYTES] = np.arange(NUM_BYTES)
    return symbols
