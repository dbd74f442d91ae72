"""The loop of encoding: words -> ids through the cache.

A slot of the cache holds up to three ids itself; more stand in an arena beside it.

    value 0: id, id << 32      or, for more than three ids, their place in the arena
    value 1: id, number << 32
"""

import numpy as np
from numpy.typing import NDArray

from trafo.tokenizer.kernels.bpe import (
    SCRATCH_PER_BYTE,
    SHORT,
    Ids,
    MergeTable,
    Scratch,
    encode_word,
)
from trafo.tokenizer.kernels.compile import kernel
from trafo.tokenizer.kernels.scan import OFFSET_MASK
from trafo.tokenizer.kernels.scan_gpt2 import Ends
from trafo.tokenizer.kernels.utf8 import Bytes
from trafo.tokenizer.kernels.word_table import (
    BATCH,
    KEY0,
    LENGTH,
    START,
    Batch,
    Slots,
    add_word,
    find_word,
    has_room,
    make_keys,
)

SLACK = 3  # ids that may be written behind the last one

# Why `encode_words` came back.
DONE, CACHE_FULL, WORD_TOO_LONG, BYTE_MISSING = range(4)

_LONGEST_CACHED = 64  # longer words hardly ever come again
_INLINE_IDS = 3
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


@kernel
def enter_words(
    text: Bytes,
    ends: Ends,
    ids: Ids,
    slots: Slots,
    arena: Bytes,
    used: NDArray[np.int64],
    batch: Batch,
) -> None:
    """Put words of one id each into the cache, which has room for them."""
    start = np.int64(0)
    for index in range(ends.size):
        make_keys(text, start, ends, index, 1, slots, batch)
        slot = find_word(text, batch, 0, slots, arena)
        if slot < 0:
            slot = -1 - slot
            add_word(text, batch, 0, slot, slots, arena, used)
        slots[slot + 2] = np.uint64(ids[index])
        slots[slot + 3] = np.uint64(1) << _HALF
        start = ends[index]


@kernel
def _remember(
    slots: Slots, slot: int, ids: Ids, first: int, count: int, long_ids: Ids, used: int
) -> int:
    """Store the ids of a word in its slot; returns how much of the arena is used."""
    slots[slot + 2] = slots[slot + 3] = np.uint64(0)
    if count > _INLINE_IDS:
        slots[slot + 2] = np.uint64(used)
        for i in range(count):
            long_ids[used + i] = ids[first + i]
        used += count
    else:
        for i in range(count):
            slots[slot + 2 + (i >> 1)] |= np.uint64(ids[first + i]) << np.uint64(32 * (i & 1))
    slots[slot + 3] |= np.uint64(count) << _HALF
    return used


@kernel
def encode_words(
    data: Bytes,
    ends: Ends,
    slots: Slots,
    arena: Bytes,
    used: NDArray[np.int64],
    long_ids: Ids,
    merges: MergeTable,
    byte_ids: Ids,
    special_ids: Ids,
    batch: Batch,
    scratch: Scratch,
    out: Ids,
    state: NDArray[np.int64],
) -> int:
    """Encode ends[state[0]:]; the first word begins at state[1], ids go to out[state[2]:].

    Returns DONE, or what must be mended before the word at state[0] can be encoded.
    """
    done, start, count, long_used = state[0], state[1], state[2], state[3]
    reason = DONE
    while done < ends.size and reason == DONE:
        num_words = min(BATCH, ends.size - done)
        make_keys(data, start, ends, done, num_words, slots, batch)
        for i in range(num_words):
            length = np.int64(batch[LENGTH, i])
            if length == 0:
                out[count] = special_ids[np.int64(batch[KEY0, i])]
                count += 1
                done += 1
                continue
            slot = find_word(data, batch, i, slots, arena)
            if slot >= 0:
                value0, value1 = slots[slot + 2], slots[slot + 3]
                number = np.int64(value1 >> _HALF)
                if number <= _INLINE_IDS:
                    out[count] = np.uint32(value0 & _LOW)
                    out[count + 1] = np.uint32(value0 >> _HALF)
                    out[count + 2] = np.uint32(value1 & _LOW)
                else:
                    for j in range(number):
                        out[count + j] = long_ids[np.int64(value0) + j]
                count += number
                done += 1
                continue
            start = np.int64(batch[START, i])
            if length > SHORT and length * SCRATCH_PER_BYTE > scratch.size:
                reason = WORD_TOO_LONG
                break
            cached = length <= _LONGEST_CACHED
            if cached and not (
                has_room(slots, arena, used, length) and long_used + length <= long_ids.size
            ):
                reason = CACHE_FULL
                break
            number = encode_word(data, start, length, byte_ids, merges, out[count:], scratch)
            if number < 0:
                reason = BYTE_MISSING
                break
            if cached:
                slot = -1 - slot
                add_word(data, batch, i, slot, slots, arena, used)
                long_used = _remember(slots, slot, out, count, number, long_ids, long_used)
            count += number
            done += 1
        if reason == DONE:
            start = ends[done - 1] & OFFSET_MASK
    state[0], state[1], state[2], state[3] = done, start, count, long_used
    return reason
