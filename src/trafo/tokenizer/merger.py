"""The arrays behind `merge.py`, made from word counts and grown as needed."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.tokenizer.count import WordCounts
from trafo.tokenizer.kernels.merge import (
    DONE,
    NONE,
    NUM_BYTES,
    PAIRS_FULL,
    PLACES_FULL,
    Births,
    Places,
    lay_out,
    list_places,
    run_merges,
)
from trafo.tokenizer.kernels.pair_heap import Heap, Pairs, Symbols, push

_MERGES_AT_ONCE = 500  # between two reports of progress
_NUM_BYTE_PAIRS = NUM_BYTES * NUM_BYTES
_MOST_CELLS = 1 << 32  # places are uint32


class Merger:
    """Finds merges one after the other; can go on to more of them later."""

    def __init__(self, words: WordCounts, most_merges: int) -> None:
        num_cells = len(words.text) + len(words) + 1
        if num_cells >= _MOST_CELLS:
            raise InputError(
                f"{len(words):,} distinct words of {len(words.text):,} bytes are too many to merge",
                hint="use a pattern that cuts the text into shorter words",
            )
        self._cells = np.empty(2 * num_cells, np.int32)
        self._pairs = _new_pairs(_NUM_BYTE_PAIRS)
        ids = np.full(_NUM_BYTE_PAIRS, NONE, np.int32)
        num_pairs = lay_out(words.text, words.ends, self._cells, ids, self._pairs, words.counts)
        total = int(self._pairs.size.sum())
        longest = int(self._pairs.size.max())
        self._places = Places(np.empty(2 * total, np.uint32), np.empty(2 * total, np.int64))
        list_places(self._cells, words.ends, words.counts, self._pairs, num_pairs, self._places)
        self._symbols = _new_symbols(most_merges)
        num_symbols = NUM_BYTES + most_merges + 1
        self._births = Births(
            np.full(num_symbols, NONE, np.int32),
            np.full(num_symbols, NONE, np.int32),
            np.empty(2 * longest, np.int32),
            np.empty(2 * longest, np.uint32),
            np.empty(2 * longest, np.int64),
        )
        self._heap = _new_heap(_NUM_BYTE_PAIRS)
        heap_size = 0
        for pair in range(num_pairs):
            heap_size = push(self._heap, heap_size, pair, self._pairs, self._symbols)
        self._merges = np.empty(2 * most_merges, np.int32)
        self._most = most_merges
        self._state = np.array([0, num_pairs, total, heap_size, NUM_BYTES], np.int64)

    def run(self, advance: Callable[[int], None] = lambda _: None) -> list[tuple[bytes, bytes]]:
        """All merges up to the number asked for, or until no pair is left."""
        while True:
            done = int(self._state[0])
            target = min(self._most, done + _MERGES_AT_ONCE)
            reason = run_merges(
                target,
                self._cells,
                self._places,
                self._pairs,
                self._heap,
                self._symbols,
                self._births,
                self._merges,
                self._state,
            )
            now = int(self._state[0])
            advance(now - done)
            if reason != DONE:
                self._grow(reason)
            elif now < target or now == self._most:
                return self._result()

    def _grow(self, reason: int) -> None:
        if reason == PAIRS_FULL:
            self._pairs = Pairs(*map(_doubled, self._pairs))
            self._heap = Heap(*map(_doubled, self._heap))
        elif reason == PLACES_FULL:
            self._places = Places(*map(_doubled, self._places))
        else:
            self._symbols = self._symbols._replace(text=_doubled(self._symbols.text))

    def _result(self) -> list[tuple[bytes, bytes]]:
        num_merges, num_symbols = int(self._state[0]), int(self._state[4])
        text = self._symbols.text.tobytes()
        offsets = self._symbols.offset[: num_symbols + 1].tolist()
        symbols = [text[a:b] for a, b in zip(offsets, offsets[1:], strict=False)]
        parts = self._merges[: 2 * num_merges].tolist()
        return [(symbols[a], symbols[b]) for a, b in zip(parts[::2], parts[1::2], strict=True)]


def _doubled(array: NDArray[np.generic]) -> NDArray[np.generic]:
    larger = np.empty(2 * array.size, array.dtype)
    larger[: array.size] = array
    return larger


def _new_pairs(capacity: int) -> Pairs:
    return Pairs(
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
    )


def _new_heap(capacity: int) -> Heap:
    return Heap(np.empty(capacity, np.int64), np.empty(capacity, np.int32))


def _new_symbols(most_merges: int) -> Symbols:
    capacity = NUM_BYTES + most_merges + 2
    symbols = Symbols(
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.uint64),
        np.zeros(capacity, np.int64),
        np.zeros(16 * capacity, np.uint8),
    )
    symbols.text[:NUM_BYTES] = np.arange(NUM_BYTES)
    symbols.offset[: NUM_BYTES + 1] = np.arange(NUM_BYTES + 1)
    symbols.length[:NUM_BYTES] = 1
    symbols.head[:NUM_BYTES] = np.arange(NUM_BYTES, dtype=np.uint64) << np.uint64(56)
    return symbols
