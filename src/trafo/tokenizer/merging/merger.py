"""Word counts -> merges: makes and grows the arrays that `kernels/merge.py` works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.tokenizer.counting.counter import WordCounts
from trafo.tokenizer.kernels.arrays import NUM_BYTES
from trafo.tokenizer.kernels.cells import NONE, Places, lay_out, list_places
from trafo.tokenizer.kernels.merge import (
    DONE,
    MERGES,
    PAIRS_FULL,
    SYMBOLS,
    Births,
    MergeArrays,
    run_merges,
)
from trafo.tokenizer.kernels.pair_heap import Heap, Pairs, Symbols, fill_heap
from trafo.tokenizer.kernels.pair_table import new_pair_table
from trafo.tokenizer.merging.known_merges import KnownMerges, Merge

_MERGES_AT_ONCE = 500  # between two reports of progress
_NUM_BYTE_PAIRS = NUM_BYTES * NUM_BYTES
_MOST_CELLS = 1 << 32  # places are uint32


class Merger:
    """Finds the merges of words: all, or those that come after known ones."""

    def __init__(
        self, words: WordCounts, most_merges: int, known: KnownMerges | None = None
    ) -> None:
        num_cells = len(words.text) + len(words) + 1
        if num_cells >= _MOST_CELLS:
            raise InputError(
                f"{len(words):,} distinct words of {len(words.text):,} bytes are too many to merge",
                hint="use a pattern that splits the text into shorter words",
            )
        self._most = most_merges
        known = known or KnownMerges([])
        numbers: NDArray[Any] = words.text
        ends = words.ends
        if known.pairs:
            numbers, ends = known.symbols(words)
        symbols = _symbols_of(known.tokens, most_merges)
        num_symbols = len(known.tokens)
        capacity = max(_NUM_BYTE_PAIRS, min(num_symbols * num_symbols, len(numbers)))
        pairs, pair_ids = _new_pairs(capacity), new_pair_table(capacity)
        cells = np.empty(2 * num_cells, np.int32)
        length = symbols.length
        num_pairs = lay_out(numbers, ends, words.counts, length, cells, pair_ids, pairs)
        del numbers, ends, pair_ids  # large, and no longer needed
        num_places = int(pairs.size.sum())
        births = _new_births(int(pairs.size.max()), NUM_BYTES + most_merges + 1)
        places = Places(np.empty(3 * num_places, np.uint32), np.empty(3 * num_places, np.int64))
        list_places(cells, words.counts, length, pairs, num_pairs, places)
        heap = Heap(np.empty(len(pairs.left), np.int64), np.empty_like(pairs.left))
        heap_size = fill_heap(heap, num_pairs, pairs, symbols)
        merges = np.empty(2 * most_merges, np.int32)
        merges[: 2 * len(known.pairs)] = np.ravel(known.pairs)
        counts = [len(known.pairs), num_pairs, num_places, heap_size, num_symbols]
        state = np.array(counts, np.int64)
        self._arrays = MergeArrays(cells, places, pairs, heap, symbols, births, merges, state)

    def run(self, advance: Callable[[int], None] = lambda _: None, least: int = 1) -> list[Merge]:
        """All merges up to the number asked for, or until no pair occurs `least` times."""
        state = self._arrays.state
        while True:
            done = int(state[MERGES])
            target = min(self._most, done + _MERGES_AT_ONCE)
            reason = run_merges(target, least, self._arrays)
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


def _new_births(longest: int, most_symbols: int) -> Births:
    """`longest`: the most places of any pair, each of which makes at most two."""
    by_left, by_right = (np.full(most_symbols, NONE, np.int32) for _ in range(2))
    return Births(
        by_left,
        by_right,
        np.empty(2 * longest, np.int32),
        np.empty(2 * longest, np.uint32),
        np.empty(2 * longest, np.int64),
    )


def _symbols_of(tokens: Sequence[bytes], most_merges: int) -> Symbols:
    """The symbols so far, with room for more."""
    text = b"".join(tokens)
    capacity = NUM_BYTES + most_merges + 2
    symbols = Symbols(
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.uint64),
        np.zeros(capacity, np.int64),
        np.zeros(max(16 * capacity, 2 * len(text)), np.uint8),
    )
    symbols.text[: len(text)] = np.frombuffer(text, np.uint8)
    symbols.length[: len(tokens)] = [len(token) for token in tokens]
    symbols.head[: len(tokens)] = [
        int.from_bytes(token[:8].ljust(8, b"\0"), "big") for token in tokens
    ]
    symbols.offset[1 : len(tokens) + 1] = np.cumsum(symbols.length[: len(tokens)])
    return symbols
