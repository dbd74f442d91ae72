"""The next merges, found by going through all words on disk without holding any.

One pass counts the most frequent pairs exactly. The best of them is the next merge. Merging `a b`
changes only pairs that end with `a` or begin with `b`, and makes only pairs that are no more
frequent than these were. So the next best is certain too, unless such a pair could beat it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from trafo.tokenizer.counting.counter import WordCounts
from trafo.tokenizer.kernels.arrays import Int64s, Uint32s
from trafo.tokenizer.kernels.pair_table import PairTable, new_pair_table
from trafo.tokenizer.merging.known_merges import KnownMerges, pairs_of

Merge = tuple[bytes, bytes]

_FEWEST_PAIRS = 1 << 10
_BYTES_PER_PAIR = 128  # of the table, which is never more than half full, and of what is made of it


def merges_by_passing(
    partitions: Callable[[], Iterable[WordCounts]],
    known: KnownMerges,
    buckets: Int64s,
    memory: int,
) -> list[Merge]:
    """The merges after the known ones, at least one; none if the memory is too small.

    `buckets` are upper bounds on how often the pairs that fall into them occur.
    """
    num_pairs = max(_FEWEST_PAIRS, memory // _BYTES_PER_PAIR)

    def count(least: int, table: PairTable) -> int:
        used = 0
        for words in partitions():
            used = known.add_frequent_pairs(words, buckets, least, table, used)
            if used < 0:
                break
        return used

    counted = counted_pairs(buckets, num_pairs, count)
    if counted is None:
        return []
    table, least = counted
    return certain_merges(*pairs_of(table), known.tokens, least)


def counted_pairs(
    buckets: Int64s, num_pairs: int, count: Callable[[int, PairTable], int]
) -> tuple[PairTable, int] | None:
    """A table of all pairs that occur `least` times or more, and `least`; None if none fits.

    `count` fills a table with the pairs in buckets of at least `least`, and returns how many they
    are, or -1 if they are too many.
    """
    least = _nth_greatest(buckets, num_pairs // 4)
    too_low = 0
    while least > too_low:
        table = new_pair_table(num_pairs)
        if count(least, table) < 0:  # only those in fuller buckets
            too_low = least
            fuller = buckets[buckets > least]
            least = _nth_greatest(fuller, len(fuller) // 2) if len(fuller) else 0
            continue
        most = int(pairs_of(table)[2].max(initial=0))
        if most >= least:
            return table, least
        least = most  # these only share buckets: there may be others as frequent
    return None


def _nth_greatest(values: Int64s, number: int) -> int:
    """The value at a place in descending order, at least 1."""
    number = max(1, min(number, len(values)))
    return max(1, int(np.partition(values, -number)[-number]))


def certain_merges(
    left: Uint32s,
    right: Uint32s,
    counts: Int64s,
    symbols: Sequence[bytes],
    least: int,
) -> list[Merge]:
    """Merge the best pair as long as it is known which that is."""
    merges: list[Merge] = []
    is_certain = np.ones(len(counts), np.bool_)
    while (most := counts.max(initial=0)) >= least:
        best = np.flatnonzero(counts == most)
        if not is_certain[best].all():
            break
        pair = max(best.tolist(), key=lambda i: (symbols[int(left[i])], symbols[int(right[i])]))
        merges.append((symbols[int(left[pair])], symbols[int(right[pair])]))
        if left[pair] == right[pair]:  # aa in aaa: what it makes, aa a, is as frequent as aa was
            break
        is_certain &= (right != left[pair]) & (left != right[pair])
        counts[pair] = 0
    return merges
