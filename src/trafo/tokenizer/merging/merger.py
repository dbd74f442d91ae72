"""Word counts -> merges: makes and grows the arrays that `kernels/merge.py` works on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.tokenizer.counting.counter import WordCounts
from trafo.tokenizer.kernels.arrays import NUM_BYTES, Int64s
from trafo.tokenizer.kernels.cells import NONE, Places, lay_out, list_places
from trafo.tokenizer.kernels.merge import DONE, MERGES, PAIRS_FULL, SYMBOLS, Births, run_merges
from trafo.tokenizer.kernels.pair_heap import Heap, Pairs, Symbols, fill_heap
from trafo.tokenizer.kernels.pair_table import new_pair_table
from trafo.tokenizer.merging.known_merges import KnownMerges

Merge = tuple[bytes, bytes]

_MERGES_AT_ONCE = 500  # between two reports of progress
_NUM_BYTE_PAIRS = NUM_BYTES * NUM_BYTES
_MOST_CELLS = 1 << 32  # places are uint32


class Merger:
    """Finds the merges of words: all, or those that come after known ones."""

    def __init__(self, words: WordCounts, most_merges: int, known: Sequence[Merge] = ()) -> None:
        num_cells = len(words.text) + len(words) + 1
        if num_cells >= _MOST_CELLS:
            raise InputError(
                f"{len(words):,} distinct words of {len(words.text):,} bytes are too many to merge",
                hint="use a pattern that splits the text into shorter words",
            )
        self._most = most_merges
        self._symbols = _symbols_of(known, most_merges)
        self._merges = np.empty(2 * most_merges, np.int32)
        numbers: NDArray[Any] = words.text
        ends = words.ends
        if known:
            merged = KnownMerges(known)
            numbers, ends = merged.symbols(words)
            self._merges[: 2 * len(known)] = merged.merges.ravel()
        self._cells = np.empty(2 * num_cells, np.int32)
        num_symbols = NUM_BYTES + len(known)
        num_pairs, num_places = self._find_pairs(numbers, ends, words.counts, num_symbols)
        self._heap = Heap(
            np.empty(len(self._pairs.left), np.int64), np.empty_like(self._pairs.left)
        )
        heap_size = fill_heap(self._heap, num_pairs, self._pairs, self._symbols)
        self._state = np.array(
            [len(known), num_pairs, num_places, heap_size, num_symbols], np.int64
        )

    def _find_pairs(
        self,
        numbers: NDArray[Any],
        ends: Int64s,
        counts: Int64s,
        num_symbols: int,
    ) -> tuple[int, int]:
        """Lay the words out and list the places of their pairs; the numbers of both."""
        capacity = max(_NUM_BYTE_PAIRS, min(num_symbols * num_symbols, len(numbers)))
        self._pairs = _new_pairs(capacity)
        pair_ids = new_pair_table(capacity)
        length = self._symbols.length
        num_pairs = lay_out(numbers, ends, counts, length, self._cells, pair_ids, self._pairs)
        del pair_ids  # large, and no longer needed
        num_places, longest = int(self._pairs.size.sum()), int(self._pairs.size.max())
        self._places = Places(
            np.empty(3 * num_places, np.uint32), np.empty(3 * num_places, np.int64)
        )
        list_places(self._cells, counts, length, self._pairs, num_pairs, self._places)
        most_symbols = NUM_BYTES + self._most + 1
        self._births = Births(
            np.full(most_symbols, NONE, np.int32),
            np.full(most_symbols, NONE, np.int32),
            np.empty(2 * longest, np.int32),
            np.empty(2 * longest, np.uint32),
            np.empty(2 * longest, np.int64),
        )
        return num_pairs, num_places

    def run(self, advance: Callable[[int], None] = lambda _: None, least: int = 1) -> list[Merge]:
        """All merges up to the number asked for, or until no pair occurs `least` times."""
        while True:
            done = int(self._state[MERGES])
            target = min(self._most, done + _MERGES_AT_ONCE)
            reason = run_merges(
                target,
                least,
                self._cells,
                self._places,
                self._pairs,
                self._heap,
                self._symbols,
                self._births,
                self._merges,
                self._state,
            )
            now = int(self._state[MERGES])
            advance(now - done)
            if reason != DONE:
                self._grow(reason)
            elif now < target or now == self._most:
                return self._result()

    def _grow(self, reason: int) -> None:
        if reason == PAIRS_FULL:
            full: list[NDArray[Any]] = [*self._pairs, *self._heap]
        else:
            full = [self._symbols.text]
        for array in full:  # in place: the system moves a large one without a second copy
            array.resize(2 * array.size, refcheck=False)

    def _result(self) -> list[Merge]:
        num_merges, num_symbols = int(self._state[MERGES]), int(self._state[SYMBOLS])
        text = self._symbols.text.tobytes()
        symbols = [text[a:b] for a, b in pairwise(self._symbols.offset[: num_symbols + 1].tolist())]
        pairs = self._merges[: 2 * num_merges].reshape(-1, 2).tolist()
        return [(symbols[left], symbols[right]) for left, right in pairs]


def _new_pairs(capacity: int) -> Pairs:
    return Pairs(
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int32),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
        np.zeros(capacity, np.int64),
    )


def _symbols_of(known: Sequence[Merge], most_merges: int) -> Symbols:
    """The bytes and the results of known merges, with room for more."""
    tokens = [bytes([byte]) for byte in range(NUM_BYTES)] + [a + b for a, b in known]
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
