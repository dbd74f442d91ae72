"""A hash table whose keys are words: what counting and encoding look words up in.

Open addressing in one flat array of uint64, four to a slot, so that one look-up touches one cache
line: two for the key and two for the value, which belongs to the caller. A word of up to 15 bytes
is its own key, which makes comparing exact and cheap. A longer one is kept in the arena: its key
is a hash and the place in the arena, and equal hashes are told apart by comparing the bytes.

    key 0: bytes 0..7                      or  the hash of all bytes
    key 1: bytes 8..14, length << 56       or  arena offset, 255 << 56

A look-up begins at the slot that the key's hash names (its home) and goes on to the next slots
until it finds the key or a free slot. The table is never more than half full, so nearly every word
is at home. Words are looked up in batches: first all keys are made and their cache lines asked for,
then the slots are compared. That keeps the processor from waiting for memory one word at a time and
made counting four times as fast.

Counting (`count_words`) keeps the count of a word in the first of its two values. A table is read
out in partitions by a second hash of the words, so that tables too large for memory can be added up
a partition at a time.
"""

from typing import NamedTuple

import numpy as np

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import Bytes, Counts, Ends, Int64s, Uint64s
from trafo.tokenizer.kernels.bits import get, load8, prefetch, put, trailing_zeros
from trafo.tokenizer.kernels.scan import OFFSET_MASK, SPECIAL_SHIFT

Slots = Uint64s
Batch = Uint64s  # five rows of BATCH, one column a word

SLOT = 4  # uint64 per slot
BATCH = 32  # words looked up together
KEY0, KEY1, HOME, START, LENGTH = range(0, 5 * BATCH, BATCH)  # where the rows of a batch begin

LONGEST_INLINE = 15
LONG = np.uint64(255 << 56)
OFFSET = np.uint64((1 << 56) - 1)
FIRST_OFFSET = 8  # so that no long word's key 1 is LONG itself, which marks one not yet stored
_ARENA_HEADER = 8  # the length of the word, before its bytes
_ARENA_SLACK = 8  # so that `load8` may read past the last word

_KEEP0 = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(16)], np.uint64)
_KEEP1 = np.array([(1 << 8 * max(n - 8, 0)) - 1 for n in range(16)], np.uint64)
_MIX_A = np.uint64(0x9E3779B97F4A7C15)
_MIX_B = np.uint64(0xC2B2AE3D27D4EB4F)
_FOLD = np.uint64(32)
_WORD_BITS = 64
_LENGTH_SHIFT = np.uint64(56)


class WordTable(NamedTuple):
    """The arrays of a table, with the number of words and the bytes of arena taken in `used`."""

    slots: Slots
    arena: Bytes
    used: Int64s


def new_table(capacity: int, arena_size: int) -> WordTable:
    """An empty table of `capacity` slots, a power of two."""
    used = np.array([0, FIRST_OFFSET], np.int64)
    return WordTable(np.zeros(capacity * SLOT, np.uint64), np.zeros(arena_size, np.uint8), used)


def new_batch() -> Batch:
    """Room for the keys of BATCH words."""
    return np.zeros(5 * BATCH, np.uint64)


@subkernel
def _load(data: Bytes, start: int, length: int) -> np.uint64:
    """Up to 8 bytes as the low end of a uint64, the rest zero, without reading past the array."""
    if start + 8 <= data.size:
        return load8(data, start) & _KEEP0[min(length, 8)]
    word = np.uint64(0)
    for i in range(min(length, 8)):
        word |= np.uint64(data[start + i]) << np.uint64(8 * i)
    return word


@subkernel
def _long_hash(data: Bytes, start: int, length: int) -> np.uint64:
    """A 64-bit hash of a word of any length, eight bytes a step."""
    state = np.uint64(length) * _MIX_B
    while length > 0:
        state = (state ^ _load(data, start, length)) * _MIX_A
        state ^= state >> _FOLD
        start += 8
        length -= 8
    return state


@subkernel
def _home(key0: np.uint64, key1: np.uint64, shift: np.uint64) -> int:
    """Where the search for a key begins: the top bits of a product, in which all bits take part."""
    return np.int64((key0 ^ key1 * _MIX_B) * _MIX_A >> shift) * SLOT


@subkernel
def _home_shift(slots: Slots) -> np.uint64:
    """How far to shift so that as many bits are left as number the slots."""
    return np.uint64(_WORD_BITS - trailing_zeros(np.uint64(slots.size // SLOT)))


@subkernel
def make_keys(
    data: Bytes, start: int, ends: Ends, first: int, num_words: int, slots: Slots, batch: Batch
) -> None:
    """Fill a batch with the words that begin at `start` and end at ends[first:].

    A special token in the stream gets length 0, and its number in place of a key.
    """
    shift = _home_shift(slots)
    for i in range(num_words):
        end = get(ends, first + i)
        length = end - start
        if length > LONGEST_INLINE:
            special = end >> SPECIAL_SHIFT
            if special:
                put(batch, KEY0 + i, np.uint64(special - 1))
                put(batch, KEY1 + i, LONG)
                put(batch, HOME + i, np.uint64(0))
                put(batch, LENGTH + i, np.uint64(0))
                start = end & OFFSET_MASK
                continue
            key0, key1 = _long_hash(data, start, length), LONG
        else:
            tag = np.uint64(length) << _LENGTH_SHIFT
            if start + 16 <= data.size:
                key0 = load8(data, start) & get(_KEEP0, length)
                key1 = load8(data, start + 8) & get(_KEEP1, length) | tag
            else:
                key0 = _load(data, start, length)
                key1 = _load(data, start + 8, max(length - 8, 0)) | tag
        home = _home(key0, key1, shift)
        prefetch(slots, home)
        put(batch, KEY0 + i, key0)
        put(batch, KEY1 + i, key1)
        put(batch, HOME + i, np.uint64(home))
        put(batch, START + i, np.uint64(start))
        put(batch, LENGTH + i, np.uint64(length))
        start = end


@subkernel
def long_word(arena: Bytes, key1: np.uint64) -> tuple[int, int]:
    """Where in the arena a long word's bytes start, and their number."""
    offset = np.int64(key1 & OFFSET)
    return offset + _ARENA_HEADER, np.int64(load8(arena, offset))


@subkernel
def _is_long_word(data: Bytes, start: int, length: int, arena: Bytes, key1: np.uint64) -> bool:
    offset, stored_length = long_word(arena, key1)
    if stored_length != length:
        return False
    for i in range(length):
        if arena[offset + i] != data[start + i]:
            return False
    return True


@subkernel
def is_at_home(batch: Batch, index: int, slots: Slots) -> bool:
    """Whether a word of up to 15 bytes is where its search begins, as nearly all are."""
    home = np.int64(get(batch, HOME + index))
    # No stored key 1 is LONG itself, so that neither long words nor special tokens are found here.
    return get(slots, home) == get(batch, KEY0 + index) and get(slots, home + 1) == get(
        batch, KEY1 + index
    )


@subkernel
def find_word(data: Bytes, batch: Batch, index: int, slots: Slots, arena: Bytes) -> int:
    """Find the slot of a word of the batch, or -1 - the free slot for it if it is not there."""
    key0, key1 = batch[KEY0 + index], batch[KEY1 + index]
    slot = np.int64(batch[HOME + index])
    while True:
        stored1 = get(slots, slot + 1)
        if stored1 == 0:
            return -1 - slot
        if get(slots, slot) == key0:
            if stored1 == key1:
                return slot
            if key1 == LONG and stored1 > LONG:
                start, length = np.int64(batch[START + index]), np.int64(batch[LENGTH + index])
                if _is_long_word(data, start, length, arena, stored1):
                    return slot
        slot += SLOT
        if slot == slots.size:
            slot = 0


@subkernel
def has_room(slots: Slots, arena: Bytes, used: Int64s, length: int) -> bool:
    """Whether a new word may be added: the table stays half empty, the arena holds its bytes."""
    if used[0] >= slots.size // SLOT // 2:
        return False
    return length <= LONGEST_INLINE or (
        used[1] + _ARENA_HEADER + length + _ARENA_SLACK <= arena.size
    )


@subkernel
def add_word(
    data: Bytes,
    batch: Batch,
    index: int,
    slot: int,
    slots: Slots,
    arena: Bytes,
    used: Int64s,
) -> None:
    """Write the key of a word of the batch into the free slot that `find_word` gave."""
    slots[slot] = batch[KEY0 + index]
    slots[slot + 1] = batch[KEY1 + index]
    used[0] += 1
    if batch[KEY1 + index] == LONG:
        start, length = np.int64(batch[START + index]), np.int64(batch[LENGTH + index])
        offset = used[1]
        slots[slot + 1] |= np.uint64(offset)
        for i in range(_ARENA_HEADER):
            arena[offset + i] = np.uint8(length >> (8 * i) & 255)
        for i in range(length):
            arena[offset + _ARENA_HEADER + i] = data[start + i]
        used[1] += (_ARENA_HEADER + length + 7) // 8 * 8


@kernel
def rehash(old: Slots, new: Slots) -> None:
    """Move every word, key and value, to an empty table of another size."""
    shift = _home_shift(new)
    for source in range(0, old.size, SLOT):
        if old[source + 1] != 0:
            # A long word's place in the arena does not count.
            slot = _home(old[source], min(old[source + 1], LONG), shift)
            while new[slot + 1] != 0:
                slot += SLOT
                if slot == new.size:
                    slot = 0
            for i in range(SLOT):
                new[slot + i] = old[source + i]


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
