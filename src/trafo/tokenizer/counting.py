"""Words -> how often each occurs.

A `WordCounter` belongs to one thread: it scans chunks of text and counts their words in a hash
table that grows with the number of distinct words. Counters are exported as `WordCounts` (plain
arrays), which another counter can add: that is how the tables of several threads, saved counts and
counts spilled to disk are merged.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain, islice
from typing import NamedTuple

import numpy as np

from trafo.tokenizer.kernels.arrays import Bytes, Counts, Ends, Specials
from trafo.tokenizer.kernels.scan import OFFSET_MASK
from trafo.tokenizer.kernels.word_table import (
    SLOT,
    WordTable,
    count_words,
    export_partition,
    new_batch,
    new_table,
    partition_size,
    rehash,
)
from trafo.tokenizer.words import Scanner

_FIRST_CAPACITY = 1 << 14  # slots: small tables stay in the cache, and in little memory
_FIRST_ARENA = 1 << 16
_ONE_EACH = np.zeros(0, np.int64)


class WordTotals(NamedTuple):
    """The sizes of counts."""

    num_distinct: int
    num_words: int  # with repetitions
    num_bytes: int  # of the distinct words

    @classmethod
    def sum(cls, many: Iterable[WordTotals]) -> WordTotals:
        """The sizes of counts that share no word, together."""
        return cls(*map(sum, zip(*many, strict=True)))


@dataclass(frozen=True)
class WordCounts:
    """Distinct words, end to end, and how often each occurs."""

    text: Bytes
    ends: Ends
    counts: Counts

    def __len__(self) -> int:
        return len(self.counts)

    def totals(self) -> WordTotals:
        """How many words there are."""
        return WordTotals(len(self.counts), int(self.counts.sum()), len(self.text))


def concatenate_counts(many: Iterable[WordCounts]) -> WordCounts:
    """Several counts that share no word, as one."""
    many = list(many)
    if len(many) == 1:
        return many[0]
    text = np.concatenate([words.text for words in many])
    text.flags.writeable = False
    starts = np.cumsum([0, *(len(words.text) for words in many)])
    ends = [words.ends + start for words, start in zip(many, starts, strict=False)]
    return WordCounts(text, np.concatenate(ends), np.concatenate([w.counts for w in many]))


def merge_counts(many: Iterable[WordCounts]) -> WordCounts:
    """The sum of several counts, each of which is needed only for a moment."""
    many = iter(many)
    first_two = list(islice(many, 2))
    if len(first_two) == 1:
        return first_two[0]
    total = WordCounter("none", num_words=max(map(len, first_two), default=0))
    for words in chain(first_two, many):
        total.add(words)
    return total.export()


class WordCounter:
    """Counts words, one chunk of text after the other."""

    def __init__(self, pattern: str, num_words: int = _FIRST_CAPACITY // 2) -> None:
        """`num_words`: how many it has room for from the beginning."""
        self._scanner = Scanner(pattern)
        self._table = new_table(1 << max(4, (2 * num_words - 1).bit_length()), _FIRST_ARENA)
        self._batch = new_batch()

    def __len__(self) -> int:
        return int(self._table.used[0])

    @property
    def memory(self) -> int:
        """Bytes held by the table."""
        return self._table.slots.nbytes + self._table.arena.nbytes

    def count(self, data: Bytes, specials: Specials) -> None:
        """Count the words of valid UTF-8 between the special tokens."""
        for first, ends in self._scanner.words(data, 0, len(data), specials):
            self._add(data, first, ends, _ONE_EACH)

    def add(self, words: WordCounts) -> None:
        """Add what another counter counted."""
        self._add(words.text, 0, words.ends, words.counts)

    def _add(self, data: Bytes, start: int, ends: Ends, weights: Counts) -> None:
        done = 0
        while True:
            done, start = count_words(data, start, ends, done, weights, *self._table, self._batch)
            if done == len(ends):
                return
            needed = (int(ends[done]) & OFFSET_MASK) - start
            self._table = _grow(self._table, needed)

    def export(self, partition: int = 0, num_partitions: int = 1) -> WordCounts:
        """Export what was counted, or one partition of it, in no particular order."""
        slots, arena, _ = self._table
        num_words, num_bytes = partition_size(slots, arena, partition, num_partitions)
        text = np.empty(num_bytes, np.uint8)
        words = WordCounts(text, np.empty(num_words, np.int64), np.empty(num_words, np.int64))
        export_partition(slots, arena, partition, num_partitions, text, words.ends, words.counts)
        text.flags.writeable = False  # as all text that kernels read
        return words

    def clear(self) -> None:
        """Forget everything and give the memory back."""
        self._table = new_table(_FIRST_CAPACITY, _FIRST_ARENA)


def _grow(table: WordTable, needed: int) -> WordTable:
    """A table with room for one more word of `needed` bytes, and many more."""
    slots, arena, used = table
    if used[0] >= slots.size // SLOT // 2:
        larger = new_table(2 * slots.size // SLOT, 0).slots
        rehash(slots, larger)
        slots = larger
    if used[1] + needed + 16 > arena.size:
        larger_arena = np.zeros(2 * arena.size + needed + 16, np.uint8)
        larger_arena[: arena.size] = arena
        arena = larger_arena
    return WordTable(slots, arena, used)
