"""One word -> its token ids: the merge of lowest rank first, the leftmost first among equals.

A table gives, for two neighbouring ids, the rank of their merge and the merged id in one number,
rank << 32 | id. Comparing such numbers compares ranks, and the low half is what to write.

Short words keep the number of each pair of neighbours in an array beside the ids. They go through
all of it for the lowest, merge there, move the rest up by one, and look up the two pairs that
changed. That is quadratic, and fastest for a dozen bytes. Long words (a megabyte without a space is
one word) would take hours so. Theirs are linked lists, so that a merge moves nothing, and a heap
of rank << 32 | position finds the lowest: n log n. An entry whose pair has changed since is
recognized by its rank and dropped.
"""

import numpy as np

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import Bytes, Ends, Ids, Int64s, Uint64s
from trafo.tokenizer.kernels.pair_table import NO_VALUE, PairTable, pair_key, pair_slot

NO_ID = np.uint32(0xFFFFFFFF)  # of a byte that the vocabulary lacks
SHORT = 256  # bytes: up to here, go through all pairs
SCRATCH_PER_BYTE = 6  # int64 that `encode_long` needs for each byte: three, and a heap of three

_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@subkernel
def _find_merge(table: PairTable, left: np.uint32, right: np.uint32) -> np.uint64:
    """rank << 32 | merged id, or NO_VALUE, which is greater than all of them."""
    return table[pair_slot(table, pair_key(left, right)) + 1]


@subkernel
def _byte_ids(data: Bytes, start: int, length: int, byte_ids: Ids, ids: Ids) -> bool:
    """Write the id of each byte, and return whether the vocabulary has them all."""
    for i in range(length):
        ids[i] = byte_ids[data[start + i]]
        if ids[i] == NO_ID:
            return False
    return True


@subkernel
def encode_short(
    data: Bytes,
    start: int,
    length: int,
    byte_ids: Ids,
    table: PairTable,
    ids: Ids,
    merges: Uint64s,
) -> int:
    """Write the ids of up to SHORT bytes and return how many, or -1 if a byte has none."""
    if not _byte_ids(data, start, length, byte_ids, ids):
        return -1
    for i in range(length - 1):
        merges[i] = _find_merge(table, ids[i], ids[i + 1])
    while length > 1:
        best = 0
        for i in range(1, length - 1):
            if merges[i] < merges[best]:
                best = i
        if merges[best] == NO_VALUE:
            break
        ids[best] = np.uint32(merges[best] & _LOW)
        length -= 1
        for i in range(best + 1, length):
            ids[i] = ids[i + 1]
            merges[i - 1] = merges[i]
        if best > 0:
            merges[best - 1] = _find_merge(table, ids[best - 1], ids[best])
        if best < length - 1:
            merges[best] = _find_merge(table, ids[best], ids[best + 1])
    return length


@subkernel
def _push(heap: Int64s, size: int, entry: int) -> int:
    node = size
    while node > 0:
        parent = (node - 1) >> 1
        if heap[parent] <= entry:
            break
        heap[node] = heap[parent]
        node = parent
    heap[node] = entry
    return size + 1


@subkernel
def _pop(heap: Int64s, size: int) -> int:
    """Take heap[0] out and return the new size."""
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


@subkernel
def _push_pair(
    left: int, right: int, ids: Ids, table: PairTable, merge: Uint64s, heap: Int64s, size: int
) -> int:
    """Look up the merge of two neighbours, push it if there is one, and return the size."""
    merge[left] = _find_merge(table, ids[left], ids[right])
    if merge[left] == NO_VALUE:
        return size
    return _push(heap, size, np.int64(merge[left] >> _HALF << _HALF | np.uint64(left)))


@kernel
def encode_long(
    data: Bytes,
    start: int,
    length: int,
    byte_ids: Ids,
    table: PairTable,
    ids: Ids,
    scratch: Int64s,
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
        merge[i] = NO_VALUE
        if i + 1 < length:
            size = _push_pair(i, i + 1, ids, table, merge, heap, size)
    while size > 0:
        entry = np.uint64(heap[0])
        size = _pop(heap, size)
        at = np.int64(entry & _LOW)
        if merge[at] == NO_VALUE or merge[at] >> _HALF != entry >> _HALF:
            continue  # one of the two has been merged since
        gone = after[at]
        ids[at] = np.uint32(merge[at] & _LOW)
        merge[gone] = NO_VALUE
        after[at] = after[gone]
        merge[at] = NO_VALUE
        if after[at] < length:
            before[after[at]] = at
            size = _push_pair(at, after[at], ids, table, merge, heap, size)
        if before[at] >= 0:
            size = _push_pair(before[at], at, ids, table, merge, heap, size)
    count = 0
    at = 0
    while at < length:
        ids[count] = ids[at]
        count += 1
        at = after[at]
    return count


@kernel
def encode_each(
    text: Bytes,
    ends: Ends,
    byte_ids: Ids,
    table: PairTable,
    ids: Ids,
    id_ends: Ends,
    scratch: Int64s,
) -> int:
    """Write the ids of all words end to end and return how many."""
    start = total = np.int64(0)
    for word in range(ends.size):
        length = ends[word] - start
        room = ids[total:]
        if length <= SHORT:
            merges = scratch[:SHORT].view(np.uint64)
            total += encode_short(text, start, length, byte_ids, table, room, merges)
        else:
            total += encode_long(text, start, length, byte_ids, table, room, scratch)
        id_ends[word] = total
        start = ends[word]
    return total
