"""Merging words that fit into memory as symbols, though not with the places of all their pairs.

A text without spaces has few words that occur twice, so that rounds would need all of them. As bare
symbols they take two bytes for each byte of text, where a `Merger` takes 64. The frequent pairs are
counted once. As many merges as are certain then happen in a single scan over all words, which also
corrects the counts: a pair that is not counted is rarer and stays so, and all places of a new pair
are seen by the scan that makes it. When the best pair is as rare as those not counted, the pairs
are counted again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trafo.tokenizer.kernels.arrays import NUM_BYTES
from trafo.tokenizer.kernels.pair_table import (
    NO_VALUE,
    PairTable,
    fill_pair_table,
    new_pair_table,
)
from trafo.tokenizer.kernels.symbols import (
    SymbolArray,
    copy_frequent,
    count_in_buckets,
    merge_pairs,
)
from trafo.tokenizer.merging.known_merges import KnownMerges, Merge, Partitions
from trafo.tokenizer.merging.passes import certain_merges, frequent_pairs

_BYTES_PER_WORD = 16
_BYTES_PER_PAIR = 256  # two tables, each half full at most, and the arrays made of one


def scanning_memory(partitions: Partitions, num_merges: int) -> int:
    """Bytes of memory for the words alone."""
    num_bytes, num_words = size_of(partitions)
    return np.dtype(_symbol_type(num_merges)).itemsize * num_bytes + _BYTES_PER_WORD * num_words


def size_of(partitions: Partitions) -> tuple[int, int]:
    """Bytes and number of all words."""
    sizes = [(len(words.text), len(words)) for words in partitions()]
    return sum(num_bytes for num_bytes, _ in sizes), sum(num_words for _, num_words in sizes)


def merge_by_scanning(
    partitions: Partitions,
    known: Sequence[Merge],
    num_merges: int,
    memory: int,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Merge]:
    """The merges after the known ones, up to `num_merges` with them; `memory` is for the pairs.

    It ends earlier where no pair is left, or not even the most frequent pairs can be counted.
    """
    words = HeldWords(partitions, known, num_merges)
    num_pairs = max(1 << 10, memory // _BYTES_PER_PAIR)
    num_buckets = 1 << max(10, (memory // 32).bit_length() - 1)
    merges: list[Merge] = []
    most = num_merges - len(known)
    while len(merges) < most:
        counted = words.frequent_pairs(num_buckets, num_pairs)
        if counted is None:
            break
        table: PairTable | None
        table, least = counted
        while table is not None:
            found = certain_merges(table, least, words.tokens)[: most - len(merges)]
            if not found:
                break
            table = words.merge(found, table, least)
            merges += found
            advance(len(found))
    return merges


class HeldWords:
    """All words as symbols in one array, which becomes shorter with every merge."""

    def __init__(self, partitions: Partitions, known: Sequence[Merge], num_merges: int) -> None:
        num_bytes, num_words = size_of(partitions)
        self._symbols: SymbolArray = np.empty(num_bytes, _symbol_type(num_merges))
        self._ends = np.empty(num_words, np.int64)
        self._counts = np.empty(num_words, np.int64)
        merged = KnownMerges(known)
        self.tokens = merged.tokens
        """the bytes of each symbol"""
        self._numbers = {token: number for number, token in enumerate(self.tokens)}
        self._lengths = np.zeros(NUM_BYTES + num_merges, np.int64)
        self._lengths[: len(self.tokens)] = [len(token) for token in self.tokens]
        self._is_left = np.zeros(NUM_BYTES + num_merges, np.uint8)
        word = place = 0
        for words, symbols, ends in merged.split(partitions):
            self._symbols[place : place + len(symbols)] = symbols
            self._ends[word : word + len(words)] = ends + place
            self._counts[word : word + len(words)] = words.counts
            word, place = word + len(words), place + len(symbols)

    def frequent_pairs(self, num_buckets: int, num_pairs: int) -> tuple[PairTable, int] | None:
        """A table of all pairs that occur so often, with their counts; None if there are none."""
        buckets = np.zeros(num_buckets, np.int64)
        words = (self._symbols, self._ends, self._counts)
        count_in_buckets(*words, self._lengths, buckets)
        return frequent_pairs(lambda: [words], self._lengths, buckets, num_pairs)

    def merge(self, merges: Sequence[Merge], table: PairTable, least: int) -> PairTable | None:
        """Merge all of these, and count what changes; None if the pairs are too many for that."""
        first_new = len(self.tokens)
        numbers = [[self._numbers[token] for token in merge] for merge in merges]
        left, right = np.array(numbers, np.uint64).T
        for one, other in merges:
            self._numbers[one + other] = len(self.tokens)
            self._lengths[len(self.tokens)] = len(one) + len(other)
            self.tokens.append(one + other)
        merged_ids = new_pair_table(len(merges))
        new = np.arange(first_new, len(self.tokens), dtype=np.uint64)
        fill_pair_table(merged_ids, left << np.uint64(32) | right, new)
        self._is_left[left] = 1
        words = (self._symbols, self._ends, self._counts, self._lengths)
        used = int(np.count_nonzero(table[1::2] != NO_VALUE))
        used = merge_pairs(*words, self._is_left, merged_ids, first_new, table, used)
        self._is_left[left] = 0
        if len(self._ends):
            self._symbols = self._symbols[: self._ends[-1]]
        if used < 0:
            return None
        frequent = np.full_like(table, NO_VALUE)
        copy_frequent(table, least, frequent)
        return frequent


def _symbol_type(num_merges: int) -> type[np.unsignedinteger[Any]]:
    return np.uint16 if NUM_BYTES + num_merges <= 1 << 16 else np.uint32
