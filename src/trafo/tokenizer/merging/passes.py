"""Frequent pairs -> the next merges, as far as they are certain.

One pass over all words counts the most frequent pairs exactly. The best of them is the next merge.
Merging `a b` changes only pairs that end with `a` or begin with `b`, and makes only pairs that are
no more frequent than these were. So the next best is certain too, unless such a pair could beat it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from trafo.tokenizer.kernels.arrays import Int64s, Uint32s
from trafo.tokenizer.kernels.pair_table import NO_VALUE, PairTable, new_pair_table
from trafo.tokenizer.kernels.symbols import SymbolArray, count_frequent
from trafo.tokenizer.merging.known_merges import KnownMerges, Merge, Partitions

Words = Callable[[], Iterable[tuple[SymbolArray, Int64s, Int64s]]]
"""words as symbols: these, where each word ends, and how often it occurs"""

_FEWEST_PAIRS = 1 << 10
_BYTES_PER_PAIR = 128  # of the table, which is never more than half full, and of what is made of it


def merges_by_passing(
    partitions: Partitions, known: KnownMerges, buckets: Int64s, memory: int
) -> list[Merge]:
    """The merges after the known ones, at least one; none if the memory is too small.

    `buckets` are upper bounds on how often the pairs that fall into them occur.
    """
    num_pairs = max(_FEWEST_PAIRS, memory // _BYTES_PER_PAIR)

    def words() -> Iterable[tuple[SymbolArray, Int64s, Int64s]]:
        return ((symbols, ends, some.counts) for some, symbols, ends in known.split(partitions))

    counted = frequent_pairs(words, known.lengths, buckets, num_pairs)
    return certain_merges(*counted, known.tokens) if counted else []


def frequent_pairs(
    words: Words, lengths: Int64s, buckets: Int64s, num_pairs: int
) -> tuple[PairTable, int] | None:
    """A table of all pairs that occur `least` times or more, and `least`; None if none fits."""
    least = _nth_greatest(buckets, num_pairs // 4)
    too_low = 0
    while least > too_low:
        table = new_pair_table(num_pairs)
        used = 0
        for symbols, ends, counts in words():
            used = count_frequent(symbols, ends, counts, lengths, buckets, least, table, used)
            if used < 0:
                break
        if used < 0:  # only those in fuller buckets
            too_low = least
            fuller = buckets[buckets > least]
            least = _nth_greatest(fuller, len(fuller) // 2) if len(fuller) else 0
            continue
        most = int(pairs_of(table)[2].max(initial=0))
        if most >= least:
            return table, least
        least = most  # these only share buckets: there may be others as frequent
    return None


def pairs_of(table: PairTable) -> tuple[Uint32s, Uint32s, Int64s]:
    """The left symbols, right symbols and counts in a table."""
    keys, counts = table.reshape(-1, 2).T
    taken = counts != NO_VALUE
    keys = keys[taken]
    return (
        (keys >> np.uint64(32)).astype(np.uint32),
        keys.astype(np.uint32),
        counts[taken].astype(np.int64),
    )


def _nth_greatest(values: Int64s, number: int) -> int:
    """The value at a place in descending order, at least 1."""
    number = max(1, min(number, len(values)))
    return max(1, int(np.partition(values, -number)[-number]))


def certain_merges(table: PairTable, least: int, tokens: Sequence[bytes]) -> list[Merge]:
    """Merge the best pair as long as it is known which that is; `tokens` are the symbols' bytes."""
    left, right, counts = pairs_of(table)
    merges: list[Merge] = []
    is_certain = np.ones(len(counts), np.bool_)
    while (most := counts.max(initial=0)) >= least:
        best = np.flatnonzero(counts == most)
        if not is_certain[best].all():
            break
        pair = max(best.tolist(), key=lambda i: (tokens[int(left[i])], tokens[int(right[i])]))
        merges.append((tokens[int(left[pair])], tokens[int(right[pair])]))
        if left[pair] == right[pair]:  # aa in aaa: what it makes, aa a, is as frequent as aa was
            break
        is_certain &= (right != left[pair]) & (left != right[pair])
        counts[pair] = 0
    return merges
