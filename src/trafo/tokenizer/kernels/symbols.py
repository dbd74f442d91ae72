"""Words as symbols, end to end in blocks: count their pairs, merge several pairs in one scan.

`block_merging.py` says how these make merges. The table of pairs is kept exact word by word: a word
that holds a pair to be merged is taken out of the counts (`_forget`), rewritten with its pairs
merged (`_merge_word`) and counted again (`_count_word`). All other words are only moved together.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import LONGEST_TOKEN, Bytes, Ends, Int64s
from trafo.tokenizer.kernels.pair_table import NO_VALUE, PairTable, pair_hash, pair_key, pair_slot

SymbolArray = NDArray[np.unsignedinteger[Any]]  # 16 bits each, or 32


class Block(NamedTuple):
    """Some of the words as symbols, end to end, with the end and the count of each word."""

    symbols: SymbolArray
    ends: Ends
    counts: Int64s


@subkernel
def _bucket_of(left: int, right: int, lengths: Int64s, num_buckets: int) -> int:
    """Hash a pair into one of 2^n buckets, or -1 if its token would be too long."""
    if lengths[left] + lengths[right] > LONGEST_TOKEN:
        return -1
    return np.int64(pair_hash(pair_key(left, right))) & (num_buckets - 1)


@kernel
def count_in_buckets(block: Block, lengths: Int64s, buckets: Int64s) -> None:
    """Add the count of each word to the buckets of its pairs."""
    symbols, ends, counts = block
    start = np.int64(0)
    for word in range(ends.size):
        for i in range(start, ends[word] - 1):
            bucket = _bucket_of(symbols[i], symbols[i + 1], lengths, buckets.size)
            if bucket >= 0:
                buckets[bucket] += counts[word]
        start = ends[word]


@kernel
def count_frequent(
    block: Block, lengths: Int64s, buckets: Int64s, least: int, table: PairTable, used: int
) -> int:
    """Count the pairs whose bucket holds `least` or more in a table with `used` entries.

    Returns how many it has then, or -1 if it would be more than half full.
    """
    symbols, ends, counts = block
    start = np.int64(0)
    for word in range(ends.size):
        for i in range(start, ends[word] - 1):
            bucket = _bucket_of(symbols[i], symbols[i + 1], lengths, buckets.size)
            if bucket < 0 or buckets[bucket] < least:
                continue
            used = _add(table, used, pair_key(symbols[i], symbols[i + 1]), counts[word])
            if used < 0:
                return used
        start = ends[word]
    return used


@subkernel
def _add(table: PairTable, used: int, key: np.uint64, count: int) -> int:
    """Add to a pair's count, and return the pairs in the table, or -1 if it is full."""
    slot = pair_slot(table, key)
    if table[slot + 1] == NO_VALUE:
        if used >= table.size // 4:
            return np.int64(-1)
        used += 1
        table[slot] = key
        table[slot + 1] = np.uint64(0)
    table[slot + 1] += np.uint64(count)
    return used


@subkernel
def _has_pair(
    symbols: SymbolArray, start: int, stop: int, is_left: Bytes, merged_ids: PairTable
) -> bool:
    for i in range(start, stop - 1):
        if is_left[symbols[i]]:
            key = pair_key(np.uint32(symbols[i]), np.uint32(symbols[i + 1]))
            if merged_ids[pair_slot(merged_ids, key) + 1] != NO_VALUE:
                return True
    return False


@subkernel
def _forget(symbols: SymbolArray, start: int, stop: int, count: int, table: PairTable) -> None:
    """Take the pairs of a word out of their counts, as far as they are counted."""
    for i in range(start, stop - 1):
        slot = pair_slot(table, pair_key(np.uint32(symbols[i]), np.uint32(symbols[i + 1])))
        if table[slot + 1] != NO_VALUE:
            table[slot + 1] -= np.uint64(count)


@subkernel
def _merge_word(
    symbols: SymbolArray, start: int, stop: int, out: int, is_left: Bytes, merged_ids: PairTable
) -> int:
    """Write the word with its pairs merged, from `out` on, and return where it ends."""
    i = start
    while i < stop:
        symbol = symbols[i]
        i += 1
        if i < stop and is_left[symbol]:
            key = pair_key(np.uint32(symbol), np.uint32(symbols[i]))
            merged = merged_ids[pair_slot(merged_ids, key) + 1]
            if merged != NO_VALUE:
                symbols[out] = merged
                out += 1
                i += 1
                continue
        symbols[out] = symbol
        out += 1
    return out


@subkernel
def _count_word(
    symbols: SymbolArray,
    start: int,
    stop: int,
    count: int,
    lengths: Int64s,
    first_new: int,
    table: PairTable,
    used: int,
) -> int:
    """Count the pairs of a changed word: those with a new symbol, and those counted before."""
    for i in range(start, stop - 1):
        left, right = np.uint32(symbols[i]), np.uint32(symbols[i + 1])
        key = pair_key(left, right)
        if left < first_new and right < first_new:
            slot = pair_slot(table, key)
            if table[slot + 1] != NO_VALUE:
                table[slot + 1] += np.uint64(count)
        elif lengths[left] + lengths[right] <= LONGEST_TOKEN:
            used = _add(table, used, key, count)
            if used < 0:
                return used
    return used


@kernel
def merge_pairs(
    block: Block,
    lengths: Int64s,
    is_left: Bytes,
    merged_ids: PairTable,
    first_new: int,
    table: PairTable,
    used: int,
) -> tuple[int, int]:
    """Merge the pairs in `merged_ids`, none of which can overlap with another, in all words.

    The words move together in `symbols`, and those of a single symbol are dropped. The counts in
    `table` stay exact, and pairs with a new symbol, `first_new` or above, come in. Returns the
    pairs in it, or -1 if it became too small (then all words are merged, but the counts are of no
    use), and the number of words left.
    """
    symbols, ends, counts = block
    start = out = num_words = np.int64(0)
    for word in range(ends.size):
        stop, count = ends[word], counts[word]
        begin = out
        if not _has_pair(symbols, start, stop, is_left, merged_ids):
            for i in range(start, stop):
                symbols[out] = symbols[i]
                out += 1
        else:
            if used >= 0:
                _forget(symbols, start, stop, count, table)
            out = _merge_word(symbols, start, stop, out, is_left, merged_ids)
            if used >= 0:
                used = _count_word(symbols, begin, out, count, lengths, first_new, table, used)
        start = stop
        if out - begin < 2:
            out = begin
            continue
        ends[num_words], counts[num_words] = out, count
        num_words += 1
    return used, num_words


@kernel
def copy_frequent(table: PairTable, least: int, out: PairTable) -> None:
    """Copy the pairs that occur `least` times or more into an empty table."""
    for slot in range(0, table.size, 2):
        if table[slot + 1] != NO_VALUE and table[slot + 1] >= np.uint64(least):
            to = pair_slot(out, table[slot])
            out[to], out[to + 1] = table[slot], table[slot + 1]
