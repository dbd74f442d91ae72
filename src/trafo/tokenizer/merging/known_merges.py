"""Words -> symbols under the merges known so far, for passes over words on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from trafo.tokenizer.counting.counter import WordCounts
from trafo.tokenizer.encoding.encoder import Merges
from trafo.tokenizer.kernels.arrays import NUM_BYTES, Int64s, Uint32s

Merge = tuple[bytes, bytes]
Partitions = Callable[[], Iterable[WordCounts]]
"""all words, each in one partition; called again for every pass"""

_BYTES_AT_ONCE = 1 << 20  # of words, while they become symbols


class KnownMerges:
    """Symbols are numbered as in training: the bytes, then the merges."""

    def __init__(self, known: Sequence[Merge]) -> None:
        number = {bytes([byte]): byte for byte in range(NUM_BYTES)}
        number |= {left + right: NUM_BYTES + i for i, (left, right) in enumerate(known)}
        self.tokens = list(number)
        """the bytes of each symbol"""
        self.lengths = np.array([len(token) for token in self.tokens], np.int64)
        self.pairs = [(number[left], number[right]) for left, right in known]

    @cached_property
    def _merges(self) -> Merges:
        merges = [(*pair, NUM_BYTES + i) for i, pair in enumerate(self.pairs)]
        return Merges.from_ids({byte: byte for byte in range(NUM_BYTES)}, merges)

    def symbols(self, words: WordCounts) -> tuple[Uint32s, Int64s]:
        """The symbols of all words, and where each word ends among them."""
        return self._merges.encode_each(words.text, words.ends)

    def split(self, partitions: Partitions) -> Iterator[tuple[WordCounts, Uint32s, Int64s]]:
        """The words of all partitions, a megabyte at a time, with their symbols and ends."""
        for words in partitions():
            start = 0
            while start < len(words):
                offset = int(words.ends[start - 1]) if start else 0
                stop = int(np.searchsorted(words.ends, offset + _BYTES_AT_ONCE, "right"))
                stop = max(stop, start + 1)
                text = words.text[offset : int(words.ends[stop - 1])]
                ends, counts = words.ends[start:stop] - offset, words.counts[start:stop]
                some = WordCounts(text, ends, counts)
                yield some, *self.symbols(some)
                start = stop
