"""One word -> its token ids: the merge of lowest rank first, the leftmost first among equals.

Short words look for the lowest rank by going through all pairs, which beats any cleverness for a
dozen bytes. Long ones (a megabyte without a space is one word) keep their pairs in a heap, so
that the work grows with n log n.
"""

import numpy as np
from numpy.typing import NDArray

from trafo.tokenizer.kernels.compile import kernel, part
from trafo.tokenizer.kernels.utf8 import Bytes

Ids = NDArray[np.uint32]
MergeTable = NDArray[np.uint64]  # open addressing, two to a slot: (left, right), (rank, merged id)
Scratch = NDArray[np.int64]

NO_ID = np.uint32(0xFFFFFFFF)  # of a byte that the vocabulary lacks
NO_MERGE = np.uint64(0xFFFFFFFFFFFFFFFF)
SHORT = 256  # bytes: up to here, go through all pairs
SCRATCH_PER_BYTE = 6  # int64 that `encode_long` needs for each byte: three, and a heap of three

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)
_MIX = np.uint64(0x9E3779B97F4A7C15)
_ONE = np.uint64(1)


@part
def merge_slot(table: MergeTable, key: np.uint64) -> int:
    """The index of the pair's slot, or of the free one it would take."""
    mask = np.uint64(table.size // 2 - 1)
    slot = 2 * np.int64((key * _MIX) >> _HALF & mask)
    while table[slot + 1] != NO_MERGE and table[slot] != key:
        slot += 2
        if slot == table.size:
            slot = 0
    return slot


@kernel
def fill_merge_table(table: MergeTable, merges: NDArray[np.uint64]) -> None:
    """Enter merges (rows of left id, right id, merged id); of two equal pairs the first counts."""
    table[:] = NO_MERGE
    for rank in range(merges.shape[0]):
        key = merges[rank, 0] << _HALF | merges[rank, 1]
        slot = merge_slot(table, key)
        if table[slot + 1] == NO_MERGE:
            table[slot] = key
            table[slot + 1] = np.uint64(rank) << _HALF | merges[rank, 2]


@part
def _merge_of(table: MergeTable, left: np.uint32, right: np.uint32) -> np.uint64:
    """rank << 32 | merged id, or NO_MERGE, which is greater than all of them."""
    return table[merge_slot(table, np.uint64(left) << _HALF | np.uint64(right)) + 1]


@part
def _byte_ids(data: Bytes, start: int, length: int, byte_ids: Ids, ids: Ids) -> bool:
    """Write the id of each byte; false if the vocabulary lacks one."""
    for i in range(length):
        ids[i] = byte_ids[data[start + i]]
        if ids[i] == NO_ID:
            return False
    return True


@part
def encode_short(
    data: Bytes,
    start: int,
    length: int,
    byte_ids: Ids,
    table: MergeTable,
    ids: Ids,
    merges: NDArray[np.uint64],
) -> int:
    """Write the ids of a word of up to SHORT bytes; returns how many, -1 if a byte has no id."""
    if not _byte_ids(data, start, length, byte_ids, ids):
        return -1
    for i in range(length - 1):
        merges[i] = _merge_of(table, ids[i], ids[i + 1])
    while length > 1:
        best = 0
        for i in range(1, length - 1):
            if merges[i] < merges[best]:
                best = i
        if merges[best] == NO_MERGE:
            break
        ids[best] = np.uint32(merges[best] & _LOW)
        length -= 1
        for i in range(best + 1, length):
            ids[i] = ids[i + 1]
            merges[i - 1] = merges[i]
        if best > 0:
            merges[best - 1] = _merge_of(table, ids[best - 1], ids[best])
        if best < length - 1:
            merges[best] = _merge_of(table, ids[best], ids[best + 1])
    return length


@part
def _push(heap: Scratch, size: int, entry: int) -> int:
    node = size
    while node > 0:
        parent = (node - 1) >> 1
        if heap[parent] <= entry:
            break
        heap[node] = heap[parent]
        node = parent
    heap[node] = entry
    return size + 1


@part
def _pop(heap: Scratch, size: int) -> int:
    """Take heap[0] out; returns the new size."""
    size -= 1
    entry = heap[size]
    node = 0
    while True:
        child = 2 * node + 1
        if child >= size:
            break
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= entry:
            break
        heap[node] = heap[child]
        node = child
    heap[node] = entry
    return size


@kernel
def encode_long(
    data: Bytes,
    start: int,
    length: int,
    byte_ids: Ids,
    table: MergeTable,
    ids: Ids,
    scratch: Scratch,
) -> int:
    """The same for a word of any length.

    Keeps a heap of rank << 32 | position over a linked list of symbols. `scratch` has
    SCRATCH_PER_BYTE int64 for each byte.
    """
    if not _byte_ids(data, start, length, byte_ids, ids):
        return -1
    merge = scratch[:length].view(np.uint64)  # of the pair that begins here, while it lives
    after = scratch[length : 2 * length]
    before = scratch[2 * length : 3 * length]
    heap = scratch[3 * length :]
    size = np.int64(0)
    for i in range(length):
        after[i] = i + 1
        before[i] = i - 1
        merge[i] = NO_MERGE
        if i + 1 < length:
            merge[i] = _merge_of(table, ids[i], ids[i + 1])
            if merge[i] != NO_MERGE:
                size = _push(heap, size, np.int64(merge[i] >> _HALF << _HALF | np.uint64(i)))
    while size > 0:
        entry = np.uint64(heap[0])
        size = _pop(heap, size)
        at = np.int64(entry & _LOW)
        if merge[at] == NO_MERGE or merge[at] >> _HALF != entry >> _HALF:
            continue  # one of the two has been merged since
        gone = after[at]
        ids[at] = np.uint32(merge[at] & _LOW)
        merge[gone] = NO_MERGE
        after[at] = after[gone]
        merge[at] = NO_MERGE
        if after[at] < length:
            before[after[at]] = at
            merge[at] = _merge_of(table, ids[at], ids[after[at]])
            if merge[at] != NO_MERGE:
                size = _push(heap, size, np.int64(merge[at] >> _HALF << _HALF | np.uint64(at)))
        left = before[at]
        if left >= 0:
            merge[left] = _merge_of(table, ids[left], ids[at])
            if merge[left] != NO_MERGE:
                size = _push(heap, size, np.int64(merge[left] >> _HALF << _HALF | np.uint64(left)))
    count = 0
    at = 0
    while at < length:
        ids[count] = ids[at]
        count += 1
        at = after[at]
    return count
