"""The most frequent pair, ties broken by the greater pair of byte strings, from a lazy heap.

An entry keeps the count that its pair had when it was pushed. Counts only fall, so lowering one
need not search the heap: when an outdated entry comes to the top, it sinks with its true count.
Byte strings are compared by their first eight bytes as one number, and in full only if these tie.
"""

from typing import NamedTuple

import numpy as np

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import LONGEST_TOKEN, Bytes, Int32s, Int64s, Uint64s

_ARITY = 4  # children of a node: a flat heap has fewer cache misses than a binary one


class Pairs(NamedTuple):
    """Every pair met so far: its symbols, its count, and its part of the list of places."""

    left: Int32s
    right: Int32s
    count: Int64s
    first: Int64s
    size: Int64s


class Symbols(NamedTuple):
    """Of each symbol: how many bytes, the first eight as a big-endian number, and all of them."""

    length: Int64s
    head: Uint64s
    offset: Int64s
    text: Bytes


class Heap(NamedTuple):
    """Pairs, and the count each had when it was pushed."""

    count: Int64s
    pair: Int32s


@subkernel
def _compare_symbols(a: int, b: int, symbols: Symbols) -> int:
    """Less than, equal to or greater than 0, as the bytes of a are to those of b."""
    if a == b:
        return 0
    if symbols.head[a] != symbols.head[b]:
        return 1 if symbols.head[a] > symbols.head[b] else -1
    for i in range(min(symbols.length[a], symbols.length[b])):
        byte_a = np.int64(symbols.text[symbols.offset[a] + i])
        byte_b = np.int64(symbols.text[symbols.offset[b] + i])
        if byte_a != byte_b:
            return byte_a - byte_b
    return symbols.length[a] - symbols.length[b]


@subkernel
def _is_better(
    count_a: int, pair_a: int, count_b: int, pair_b: int, pairs: Pairs, symbols: Symbols
) -> bool:
    if count_a != count_b:
        return count_a > count_b
    order = _compare_symbols(pairs.left[pair_a], pairs.left[pair_b], symbols)
    if order == 0:
        order = _compare_symbols(pairs.right[pair_a], pairs.right[pair_b], symbols)
    return order > 0


@subkernel
def push(heap: Heap, size: int, pair: int, pairs: Pairs, symbols: Symbols) -> int:
    """Add a pair with its present count, and return the new size."""
    count = pairs.count[pair]
    node = size
    while node > 0:
        parent = (node - 1) // _ARITY
        if not _is_better(count, pair, heap.count[parent], heap.pair[parent], pairs, symbols):
            break
        heap.count[node] = heap.count[parent]
        heap.pair[node] = heap.pair[parent]
        node = parent
    heap.count[node] = count
    heap.pair[node] = pair
    return size + 1


@subkernel
def may_merge(pair: int, pairs: Pairs, symbols: Symbols) -> bool:
    """Whether the token that a pair would make is not too long."""
    length = symbols.length[pairs.left[pair]] + symbols.length[pairs.right[pair]]
    return length <= LONGEST_TOKEN


@kernel
def fill_heap(heap: Heap, num_pairs: int, pairs: Pairs, symbols: Symbols) -> int:
    """Push the first pairs, all that may be merged, and return the size."""
    size = 0
    for pair in range(num_pairs):
        if may_merge(pair, pairs, symbols):
            size = push(heap, size, pair, pairs, symbols)
    return size


@subkernel
def _sift_down(
    heap: Heap, size: int, count: int, pair: int, pairs: Pairs, symbols: Symbols
) -> None:
    """Put an entry where the top was, and everything in order."""
    node = 0
    while True:
        best = _ARITY * node + 1
        if best >= size:
            break
        for child in range(best + 1, min(best + _ARITY, size)):
            if _is_better(
                heap.count[child],
                heap.pair[child],
                heap.count[best],
                heap.pair[best],
                pairs,
                symbols,
            ):
                best = child
        if not _is_better(heap.count[best], heap.pair[best], count, pair, pairs, symbols):
            break
        heap.count[node] = heap.count[best]
        heap.pair[node] = heap.pair[best]
        node = best
    heap.count[node] = count
    heap.pair[node] = pair


@subkernel
def pop_best(heap: Heap, size: int, pairs: Pairs, symbols: Symbols) -> tuple[int, int]:
    """Take out and return the best pair (-1 if none is left), and the new size."""
    while size > 0:
        pair = heap.pair[0]
        count = pairs.count[pair]
        if count > 0 and count < heap.count[0]:
            _sift_down(heap, size, count, pair, pairs, symbols)  # it has become rarer since
            continue
        size -= 1
        if size > 0:
            _sift_down(heap, size, heap.count[size], heap.pair[size], pairs, symbols)
        if count > 0:
            return pair, size
    return -1, 0
