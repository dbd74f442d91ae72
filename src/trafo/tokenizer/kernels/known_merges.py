"""Words under known merges: their symbols, and upper bounds on how frequent their pairs are."""

import numpy as np

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import LONGEST_TOKEN, Bytes, Ends, Ids, Int64s
from trafo.tokenizer.kernels.bpe import (
    SHORT,
    encode_long,
    encode_short,
)
from trafo.tokenizer.kernels.pair_table import NO_VALUE, PairTable, pair_hash, pair_key, pair_slot


@subkernel
def _symbols_of(
    text: Bytes,
    start: int,
    length: int,
    byte_ids: Ids,
    merges: PairTable,
    ids: Ids,
    scratch: Int64s,
) -> int:
    if length <= SHORT:
        room = scratch[:SHORT].view(np.uint64)
        return encode_short(text, start, length, byte_ids, merges, ids, room)
    return encode_long(text, start, length, byte_ids, merges, ids, scratch)


@kernel
def symbols_of_words(
    text: Bytes,
    ends: Ends,
    byte_ids: Ids,
    merges: PairTable,
    symbols: Ids,
    symbol_ends: Ends,
    scratch: Int64s,
) -> int:
    """Write the symbols of all words end to end; returns how many."""
    start = total = np.int64(0)
    for word in range(ends.size):
        length = ends[word] - start
        total += _symbols_of(text, start, length, byte_ids, merges, symbols[total:], scratch)
        symbol_ends[word] = total
        start = ends[word]
    return total


@subkernel
def bucket_of(left: np.uint32, right: np.uint32, num_buckets: int) -> int:
    """Which of 2^n buckets a pair falls into, by its hash."""
    return np.int64(pair_hash(pair_key(left, right))) & (num_buckets - 1)


@kernel
def add_pairs(
    text: Bytes,
    ends: Ends,
    counts: Int64s,
    byte_ids: Ids,
    merges: PairTable,
    lengths: Int64s,
    ids: Ids,
    scratch: Int64s,
    buckets: Int64s,
) -> None:
    """Add the count of each word to the buckets of its pairs; `lengths` are those of symbols."""
    start = np.int64(0)
    for word in range(ends.size):
        number = _symbols_of(text, start, ends[word] - start, byte_ids, merges, ids, scratch)
        for i in range(number - 1):
            if lengths[ids[i]] + lengths[ids[i + 1]] <= LONGEST_TOKEN:
                buckets[bucket_of(ids[i], ids[i + 1], buckets.size)] += counts[word]
        start = ends[word]


@kernel
def best_pairs(
    text: Bytes,
    ends: Ends,
    byte_ids: Ids,
    merges: PairTable,
    lengths: Int64s,
    ids: Ids,
    scratch: Int64s,
    buckets: Int64s,
    best: Int64s,
) -> None:
    """The fullest bucket among those of each word's pairs; 0 for a single symbol."""
    start = np.int64(0)
    for word in range(ends.size):
        number = _symbols_of(text, start, ends[word] - start, byte_ids, merges, ids, scratch)
        best[word] = 0
        for i in range(number - 1):
            if lengths[ids[i]] + lengths[ids[i + 1]] <= LONGEST_TOKEN:
                best[word] = max(best[word], buckets[bucket_of(ids[i], ids[i + 1], buckets.size)])
        start = ends[word]


@kernel
def gather_words(text: Bytes, ends: Ends, chosen: Int64s, out: Bytes, out_ends: Ends) -> None:
    """Copy the chosen words, end to end."""
    size = 0
    for index in range(chosen.size):
        word = chosen[index]
        start = ends[word - 1] if word > 0 else 0
        for i in range(start, ends[word]):
            out[size] = text[i]
            size += 1
        out_ends[index] = size


@kernel
def add_frequent_pairs(
    text: Bytes,
    ends: Ends,
    counts: Int64s,
    byte_ids: Ids,
    merges: PairTable,
    lengths: Int64s,
    ids: Ids,
    scratch: Int64s,
    buckets: Int64s,
    least: int,
    table: PairTable,
    used: int,
) -> int:
    """Count the pairs whose bucket holds `least` or more, each by itself.

    `table`: two symbols -> count, of which `used` are taken. Returns how many are now, or -1 if
    more than half of it would be.
    """
    start = np.int64(0)
    for word in range(ends.size):
        number = _symbols_of(text, start, ends[word] - start, byte_ids, merges, ids, scratch)
        for i in range(number - 1):
            is_too_long = lengths[ids[i]] + lengths[ids[i + 1]] > LONGEST_TOKEN
            if is_too_long or buckets[bucket_of(ids[i], ids[i + 1], buckets.size)] < least:
                continue
            key = pair_key(ids[i], ids[i + 1])
            slot = pair_slot(table, key)
            if table[slot + 1] == NO_VALUE:
                used += 1
                if used > table.size // 4:
                    return -1
                table[slot] = key
                table[slot + 1] = np.uint64(0)
            table[slot + 1] += np.uint64(counts[word])
        start = ends[word]
    return used
