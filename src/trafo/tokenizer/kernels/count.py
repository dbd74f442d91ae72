"""The loops of counting: words into the table, the table out again."""

import numpy as np

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import Bytes, Counts, Ends
from trafo.tokenizer.kernels.bits import get, put
from trafo.tokenizer.kernels.scan import OFFSET_MASK
from trafo.tokenizer.kernels.word_table import (
    BATCH,
    HOME,
    LENGTH,
    LONG,
    SLOT,
    Batch,
    Slots,
    add_word,
    find_word,
    has_room,
    is_at_home,
    long_word,
    make_keys,
)

COUNT = 2  # where in a slot the count is
_MIX = np.uint64(0xD6E8FEB86659FD93)


@kernel
def count_words(
    data: Bytes,
    start: int,
    ends: Ends,
    done: int,
    weights: Counts,
    slots: Slots,
    arena: Bytes,
    used: Counts,
    batch: Batch,
) -> tuple[int, int]:
    """Add the words ends[done:], the first of which begins at `start`, to the table.

    No weights: each counts once. Returns how many are done and where the next one begins; it is
    not all of them if the table or the arena must grow first.
    """
    while done < ends.size:
        num_words = min(BATCH, ends.size - done)
        make_keys(data, start, ends, done, num_words, slots, batch)
        for i in range(num_words):
            length = np.int64(get(batch, LENGTH + i))
            if length > 0:
                slot = np.int64(get(batch, HOME + i))
                if not is_at_home(batch, i, slots):
                    slot = find_word(data, batch, i, slots, arena)
                if slot < 0:
                    if not has_room(slots, arena, used, length):
                        return done, start
                    slot = -1 - slot
                    add_word(data, batch, i, slot, slots, arena, used)
                weight = weights[done] if weights.size else 1
                put(slots, slot + COUNT, get(slots, slot + COUNT) + np.uint64(weight))
            start = get(ends, done) & OFFSET_MASK
            done += 1
    return done, start


@subkernel
def _is_in_partition(key0: np.uint64, key1: np.uint64, partition: int, num_partitions: int) -> bool:
    """Whether a slot is taken, and by a word of this partition, which depends on the word alone."""
    if key1 == 0:
        return False
    mixed = (key0 ^ min(key1, LONG) * _MIX) * _MIX
    return np.int64(mixed >> np.uint64(40)) % num_partitions == partition


@kernel
def partition_size(
    slots: Slots, arena: Bytes, partition: int, num_partitions: int
) -> tuple[int, int]:
    """How many words a partition of the table has, and how many bytes these have."""
    num_words = size = 0
    for slot in range(0, slots.size, SLOT):
        key1 = slots[slot + 1]
        if _is_in_partition(slots[slot], key1, partition, num_partitions):
            num_words += 1
            if key1 >= LONG:
                size += long_word(arena, key1)[1]
            else:
                size += np.int64(key1 >> np.uint64(56))
    return num_words, size


@kernel
def export_partition(
    slots: Slots,
    arena: Bytes,
    partition: int,
    num_partitions: int,
    text: Bytes,
    ends: Ends,
    counts: Counts,
) -> None:
    """Write the words of a partition end to end, and their counts."""
    index = size = 0
    for slot in range(0, slots.size, SLOT):
        key1 = slots[slot + 1]
        if not _is_in_partition(slots[slot], key1, partition, num_partitions):
            continue
        if key1 >= LONG:
            start, length = long_word(arena, key1)
            for i in range(length):
                text[size + i] = arena[start + i]
        else:
            length = np.int64(key1 >> np.uint64(56))
            for i in range(length):
                shift = np.uint64(8 * (i & 7))
                text[size + i] = np.uint8(slots[slot + (i >> 3)] >> shift & np.uint64(255))
        size += length
        ends[index] = size
        counts[index] = np.int64(slots[slot + COUNT])
        index += 1
