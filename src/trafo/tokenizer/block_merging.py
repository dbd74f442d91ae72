"""Word counts -> merges within a limited memory: as symbols, in blocks, partly on disk.

A `Merger` takes 64 bytes for each byte of a word, because it knows every place of every pair. Here
the words are bare symbols, two bytes each, in blocks of about a megabyte. Blocks that the memory
cannot hold are in a temporary file. The merges are the same, found in three steps:

 1. One scan over all blocks adds up the pairs in buckets. Pairs may share a bucket, so each is an
    upper bound. A second scan counts exactly the pairs whose buckets hold `least` or more, with
    `least` chosen so that these fit into a table.
 2. The best pair in the table is the next merge. Merging `a b` changes only pairs that end with
    `a` or begin with `b`, and makes only pairs that are no more frequent than these were. So the
    next best is certain too, unless such a pair could beat it: a scan merges several pairs.
 3. The scan that merges them also corrects the table. A pair that is not in the table is rarer
    than `least` and stays so, and the scan sees all places of the pairs that it makes. When the
    best pair is rarer than `least`, it begins again with step 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryFile, gettempdir
from typing import BinaryIO

import numpy as np

from trafo.errors import InputError
from trafo.runtime.atomic import storage_errors
from trafo.runtime.sizes import format_size
from trafo.tokenizer.counting import WordCounts
from trafo.tokenizer.kernels.arrays import NUM_BYTES, Int64s, Uint32s
from trafo.tokenizer.kernels.pair_table import (
    NO_VALUE,
    PairTable,
    fill_pair_table,
    new_pair_table,
)
from trafo.tokenizer.kernels.symbols import (
    Block,
    copy_frequent,
    count_frequent,
    count_in_buckets,
    merge_pairs,
)
from trafo.tokenizer.merging import Merge

_BLOCK_BYTES = 1 << 20  # of words in a block
_BYTES_PER_MERGE = 512  # of the token and its entries in tables
_BYTES_PER_PAIR = 160  # two tables, each half full at most, and the arrays made of one
_MIN_PAIRS, _FIRST_PAIRS = 1 << 10, 1 << 13  # a table that is larger than needed takes time
_MOST_BUCKET_BITS = 21  # more would hardly ever tell more pairs apart


class SymbolBlocks:
    """All words in blocks, which become shorter with every merge."""

    def __init__(
        self, words: Iterable[WordCounts], symbol_type: type, memory: int, file: BinaryIO
    ) -> None:
        """Hold blocks of `memory` bytes, and the rest in the file."""
        self._held: list[Block] = []
        self._stored: list[tuple[int, int, int]] = []  # offset in the file, symbols, words
        self._types = (symbol_type, np.int64, np.int64)
        self._file = file
        offset = 0
        for block in map(self._as_block, _split(words)):
            num_bytes = sum(array.nbytes for array in block)
            memory -= num_bytes
            if memory >= 0:
                self._held.append(block)
            else:
                self._stored.append(self._write(offset, block))
                offset += num_bytes

    def _as_block(self, words: WordCounts) -> Block:
        return Block(words.text.astype(self._types[0]), words.ends, words.counts)

    def __iter__(self) -> Iterator[Block]:
        yield from self._held
        for stored in self._stored:
            yield self._read(*stored)

    def update(self, change: Callable[[Block], Block]) -> None:
        """Replace each block by a smaller one."""
        self._held = [change(block) for block in self._held]
        self._stored = [
            self._write(stored[0], change(self._read(*stored))) for stored in self._stored
        ]

    def _write(self, offset: int, block: Block) -> tuple[int, int, int]:
        self._file.seek(offset)
        for array in block:
            self._file.write(np.ascontiguousarray(array).data)
        return offset, len(block.symbols), len(block.ends)

    def _read(self, offset: int, num_symbols: int, num_words: int) -> Block:
        sizes = zip((num_symbols, num_words, num_words), self._types, strict=True)
        block = Block(*(np.empty(size, dtype) for size, dtype in sizes))
        self._file.seek(offset)
        for array in block:
            self._file.readinto(array.view(np.uint8).data)  # type: ignore[attr-defined]
        return block


def _split(partitions: Iterable[WordCounts]) -> Iterator[WordCounts]:
    """The words of all partitions, about a megabyte at a time."""
    for words in partitions:
        start = 0
        while start < len(words):
            offset = int(words.ends[start - 1]) if start else 0
            stop = int(np.searchsorted(words.ends, offset + _BLOCK_BYTES, "right"))
            stop = max(stop, start + 1)
            text = words.text[offset : int(words.ends[stop - 1])]
            yield WordCounts(text, words.ends[start:stop] - offset, words.counts[start:stop].copy())
            start = stop


def merge_in_blocks(
    words: Iterable[WordCounts],
    num_merges: int,
    max_memory: int,
    folder: Path | None = None,
    advance: Callable[[int], None] = lambda _: None,
) -> list[Merge]:
    """Find the merges of these words, with a file in `folder` for what the memory cannot hold."""
    memory = max(3 * max_memory // 4 - _BYTES_PER_MERGE * num_merges, max_memory // 4)
    most_pairs = max(_MIN_PAIRS, memory // 2 // _BYTES_PER_PAIR)
    num_pairs = min(most_pairs, _FIRST_PAIRS)
    num_buckets = 1 << min(_MOST_BUCKET_BITS, max(10, (memory // 4 // 8).bit_length() - 1))
    with storage_errors(folder or gettempdir()), TemporaryFile(dir=folder) as file:
        merger = _BlockMerger(words, num_merges, memory // 4, file)
        while len(merger.merges) < num_merges:
            buckets = merger.count_in_buckets(num_buckets)
            if not buckets.any():  # no word has a pair left
                break
            if merger.count_frequent(buckets, num_pairs):
                while found := merger.merge_certain():
                    advance(found)
            elif num_pairs < most_pairs:  # too many pairs are equally frequent
                num_pairs = min(most_pairs, 4 * num_pairs)
            else:
                raise InputError(
                    f"{format_size(max_memory)} of memory are not enough to merge these words",
                    hint=f"allow {format_size(2 * max_memory)}",
                )
    return merger.merges


class _BlockMerger:
    """The words, the symbols so far, and the table of frequent pairs."""

    def __init__(
        self, words: Iterable[WordCounts], num_merges: int, memory: int, file: BinaryIO
    ) -> None:
        most_symbols = NUM_BYTES + num_merges
        self.merges: list[Merge] = []
        self._num_merges = num_merges
        self._blocks = SymbolBlocks(
            words, np.uint16 if most_symbols <= 1 << 16 else np.uint32, memory, file
        )
        self._tokens = [bytes([byte]) for byte in range(NUM_BYTES)]
        self._lengths = np.ones(most_symbols, np.int64)  # in bytes
        self._heads = np.zeros(most_symbols, np.uint64)  # the first eight bytes, big endian
        self._heads[:NUM_BYTES] = [_head(token) for token in self._tokens]
        self._is_left = np.zeros(most_symbols, np.uint8)
        self._table: PairTable = new_pair_table(0)
        self._least = 1  # every pair that occurs so often is in the table

    def count_in_buckets(self, num_buckets: int) -> Int64s:
        """Upper bounds on how often pairs occur."""
        buckets = np.zeros(num_buckets, np.int64)
        for block in self._blocks:
            count_in_buckets(block, self._lengths, buckets)
        return buckets

    def count_frequent(self, buckets: Int64s, num_pairs: int) -> bool:
        """Fill the table with the most frequent pairs, and return whether it has room for any."""
        least = _nth_greatest(buckets, num_pairs // 4)
        too_low = 0
        while least > too_low:
            table = new_pair_table(num_pairs)
            used = 0
            for block in self._blocks:
                used = count_frequent(block, self._lengths, buckets, least, table, used)
                if used < 0:
                    break
            if used < 0:  # only those in fuller buckets
                too_low = least
                fuller = buckets[buckets > least]
                least = _nth_greatest(fuller, len(fuller) // 2) if len(fuller) else 0
                continue
            most = int(_entries(table)[2].max(initial=0))
            if most >= least:
                self._table, self._least = table, least
                return True
            least = most  # these only share buckets: there may be others as frequent
        return False

    def merge_certain(self) -> int:
        """Merge the best pairs, as many as are certain, in one scan, and return how many."""
        pairs = self._certain_pairs()[: self._num_merges - len(self.merges)]
        if pairs:
            self._merge(pairs)
        return len(pairs)

    def _certain_pairs(self) -> list[tuple[int, int]]:
        left, right, counts = _entries(self._table)
        tokens, heads = self._tokens, self._heads[left]
        pairs: list[tuple[int, int]] = []
        is_certain = np.ones(len(counts), np.bool_)
        while (most := counts.max(initial=0)) >= self._least:
            best = np.flatnonzero(counts == most)
            if not is_certain[best].all():
                break
            best = best[heads[best] == heads[best].max()]  # the greatest pair of byte strings
            at = max(best.tolist(), key=lambda i: (tokens[int(left[i])], tokens[int(right[i])]))
            one, other = int(left[at]), int(right[at])
            pairs.append((one, other))
            if one == other:  # aa in aaa: what it makes, aa a, is as frequent as aa was
                break
            is_certain &= (right != one) & (left != other)
            counts[at] = 0
        return pairs

    def _merge(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Merge all of these pairs and keep the table exact, or empty it if it is too small."""
        first_new = len(self._tokens)
        for left, right in pairs:
            token = self._tokens[left] + self._tokens[right]
            self._lengths[len(self._tokens)] = len(token)
            self._heads[len(self._tokens)] = _head(token)
            self.merges.append((self._tokens[left], self._tokens[right]))
            self._tokens.append(token)
        merged_ids = new_pair_table(len(pairs))
        keys = np.array([left << 32 | right for left, right in pairs], np.uint64)
        fill_pair_table(merged_ids, keys, np.arange(first_new, len(self._tokens), dtype=np.uint64))
        lefts = [left for left, _ in pairs]
        self._is_left[lefts] = 1
        used = int(np.count_nonzero(self._table[1::2] != NO_VALUE))

        def merge(block: Block) -> Block:
            nonlocal used
            used, num_words = merge_pairs(
                block, self._lengths, self._is_left, merged_ids, first_new, self._table, used
            )
            ends = block.ends[:num_words]
            return Block(
                block.symbols[: ends[-1] if num_words else 0], ends, block.counts[:num_words]
            )

        self._blocks.update(merge)
        self._is_left[lefts] = 0
        frequent = np.full_like(self._table, NO_VALUE)
        if used >= 0:
            copy_frequent(self._table, self._least, frequent)
        self._table = frequent


def _entries(table: PairTable) -> tuple[Uint32s, Uint32s, Int64s]:
    """The left symbols, right symbols and counts in a table."""
    keys, counts = table.reshape(-1, 2).T
    is_taken = counts != NO_VALUE
    keys = keys[is_taken]
    left, right = (keys >> np.uint64(32)).astype(np.uint32), keys.astype(np.uint32)
    return left, right, counts[is_taken].astype(np.int64)


def _nth_greatest(values: Int64s, number: int) -> int:
    """The value at a place in descending order, at least 1."""
    number = max(1, min(number, len(values)))
    return max(1, int(np.partition(values, -number)[-number]))


def _head(token: bytes) -> int:
    return int.from_bytes(token[:8].ljust(8, b"\0"), "big")
