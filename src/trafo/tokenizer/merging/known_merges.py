"""Words -> symbols under known merges; and how frequent the pairs in them can be at most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trafo.tokenizer.counting.counter import WordCounts
from trafo.tokenizer.encoding.encoder import Merges
from trafo.tokenizer.kernels.arrays import NUM_BYTES, Int64s, Uint32s, Uint64s
from trafo.tokenizer.kernels.bpe import SCRATCH_PER_BYTE, SHORT
from trafo.tokenizer.kernels.known_merges import (
    add_frequent_pairs,
    add_pairs,
    best_pairs,
    symbols_of_words,
)
from trafo.tokenizer.kernels.pair_table import NO_VALUE, PairTable

Buckets = Int64s


class KnownMerges:
    """Symbols are numbered as in training: the bytes, then the merges."""

    def __init__(self, known: Sequence[tuple[bytes, bytes]]) -> None:
        number = {bytes([byte]): byte for byte in range(NUM_BYTES)}
        number |= {left + right: NUM_BYTES + i for i, (left, right) in enumerate(known)}
        rows = [(number[left], number[right], number[left + right]) for left, right in known]
        self.tokens = list(number)  # the bytes of each symbol
        self._lengths = np.array([len(token) for token in self.tokens], np.int64)
        self.merges = np.array([row[:2] for row in rows], np.int32).reshape(-1, 2)
        self._merges = Merges.from_ids({byte: byte for byte in range(NUM_BYTES)}, rows)

    def symbols(self, words: WordCounts) -> tuple[Uint32s, Int64s]:
        """The symbols of all words, and where each word ends among them."""
        symbols = np.empty(len(words.text), np.uint32)
        ends = np.empty(len(words), np.int64)
        total = symbols_of_words(
            words.text, words.ends, *self._tables(), symbols, ends, self._scratch(words)
        )
        return symbols[:total], ends

    def add_pairs(self, words: WordCounts, buckets: Buckets) -> None:
        """Add the count of every pair to the bucket that it falls into by its hash."""
        ids = np.empty(_longest(words), np.uint32)
        scratch = self._scratch(words)
        lengths = self._lengths
        add_pairs(
            words.text, words.ends, words.counts, *self._tables(), lengths, ids, scratch, buckets
        )

    def best_pairs(self, words: WordCounts, buckets: Buckets) -> Int64s:
        """For each word an upper bound on how often any of its pairs occurs, in all words."""
        ids = np.empty(_longest(words), np.uint32)
        best = np.empty(len(words), np.int64)
        scratch = self._scratch(words)
        best_pairs(
            words.text, words.ends, *self._tables(), self._lengths, ids, scratch, buckets, best
        )
        return best

    def add_frequent_pairs(
        self, words: WordCounts, buckets: Buckets, least: int, table: PairTable, used: int
    ) -> int:
        """Count the pairs whose bucket holds `least` or more in a table: the entries in use, or -1.

        The table is one of `new_pair_table`; -1 says that it is too small.
        """
        ids = np.empty(_longest(words), np.uint32)
        scratch = self._scratch(words)
        return int(
            add_frequent_pairs(
                words.text,
                words.ends,
                words.counts,
                *self._tables(),
                self._lengths,
                ids,
                scratch,
                buckets,
                least,
                table,
                used,
            )
        )

    def _tables(self) -> tuple[Uint32s, Uint64s]:
        return self._merges.byte_ids, self._merges.table

    def _scratch(self, words: WordCounts) -> Int64s:
        return np.empty(SCRATCH_PER_BYTE * max(SHORT, _longest(words)), np.int64)


def pairs_of(table: PairTable) -> tuple[Uint32s, Uint32s, Buckets]:
    """The left symbols, right symbols and counts in a table."""
    keys, counts = table.reshape(-1, 2).T
    taken = counts != NO_VALUE
    keys = keys[taken]
    return (
        (keys >> np.uint64(32)).astype(np.uint32),
        keys.astype(np.uint32),
        counts[taken].astype(np.int64),
    )


def _longest(words: WordCounts) -> int:
    return int(np.diff(words.ends, prepend=0).max(initial=0))
