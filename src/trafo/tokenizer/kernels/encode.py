"""The loop of encoding: words -> ids through the cache.

A slot of the cache holds up to three ids itself; more stand in an arena beside it.

    value 0: id, id << 32      or, for more than three ids, their place in the arena
    value 1: id, number << 32
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from trafo.tokenizer.kernels.bits import get, put
from trafo.tokenizer.kernels.bpe import (
    NO_ID,
    SHORT,
    Ids,
    MergeTable,
    encode_short,
)
from trafo.tokenizer.kernels.compile import kernel, part
from trafo.tokenizer.kernels.scan import OFFSET_MASK, Cuts, scan_words_gpt2
from trafo.tokenizer.kernels.scan_gpt2 import Ends
from trafo.tokenizer.kernels.utf8 import Bytes
from trafo.tokenizer.kernels.word_table import (
    BATCH,
    HOME,
    KEY0,
    LENGTH,
    START,
    Batch,
    Slots,
    add_word,
    find_word,
    has_room,
    is_at_home,
    make_keys,
)
from trafo.tokenizer.kernels.workspace import (
    Handles,
    as_bytes,
    as_int64s,
    as_uint32s,
    as_uint64s,
)

SLACK = 3  # ids that may be written behind the last one

# The arrays of an encoder, in the order of their handles.
ARRAYS = (
    "slots",
    "arena",
    "used",
    "long_ids",
    "merges",
    "byte_ids",
    "special_ids",
    "batch",
    "scratch",
    "state",
    "classes",
    "ends",
    "places",
)

# What the state holds: words encoded, where the next one begins, ids written, ids in the arena;
# of the scan: ends found, how far it has come, the next cut; and how many cuts have been met.
WORDS, START_OF_WORD, IDS, LONG_IDS, NUM_ENDS, SCANNED, NEXT_CUT, CUTS_MET = range(8)

# Why `encode_words` came back.
DONE, CACHE_FULL, LONG_WORD, BYTE_MISSING = range(4)

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


@part
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


@part
def _arrays(handles: Handles) -> Any:
    """The arrays of an encoder, in the order in which `_encode_words` takes them."""
    return (
        as_uint64s(handles[0], handles[1]),
        as_bytes(handles[2], handles[3]),
        as_int64s(handles[4], handles[5]),
        as_uint32s(handles[6], handles[7]),
        as_uint64s(handles[8], handles[9]),
        as_uint32s(handles[10], handles[11]),
        as_uint32s(handles[12], handles[13]),
        as_uint64s(handles[14], handles[15]),
        as_uint64s(handles[16], handles[17]),
        as_int64s(handles[18], handles[19]),
        as_int64s(handles[24], handles[25]),
    )


@part
def _encode_words(
    data: Bytes,
    ends: Ends,
    num_ends: int,
    out: Ids,
    slots: Slots,
    arena: Bytes,
    used: NDArray[np.int64],
    long_ids: Ids,
    merges: MergeTable,
    byte_ids: Ids,
    special_ids: Ids,
    batch: Batch,
    scratch: NDArray[np.uint64],
    state: NDArray[np.int64],
    places: NDArray[np.int64],
) -> int:
    """Encode ends[state[WORDS] : num_ends]; the first begins at state[START_OF_WORD].

    `places` gets the number of ids before each cut; one whose id is NO_ID leaves no other trace.
    Returns DONE, or what must be mended before the word at state[WORDS] can be encoded.
    """
    done, start, count, long_used = state[WORDS], state[START_OF_WORD], state[IDS], state[LONG_IDS]
    reason = DONE
    while done < num_ends and reason == DONE:
        num_words = min(BATCH, num_ends - done)
        make_keys(data, start, ends, done, num_words, slots, batch)
        for i in range(num_words):
            slot = np.int64(get(batch, HOME + i))
            if not is_at_home(batch, i, slots):
                if batch[LENGTH + i] == 0:
                    out[count] = special_ids[np.int64(batch[KEY0 + i])]
                    places[state[CUTS_MET]] = count
                    state[CUTS_MET] += 1
                    count += out[count] != NO_ID
                    done += 1
                    continue
                slot = find_word(data, batch, i, slots, arena)
            if slot >= 0:
                value0, value1 = get(slots, slot + 2), get(slots, slot + 3)
                number = np.int64(value1 >> _HALF)
                if number <= _INLINE_IDS:  # three are written whatever the number: no branch
                    put(out, count, np.uint32(value0 & _LOW))
                    put(out, count + 1, np.uint32(value0 >> _HALF))
                    put(out, count + 2, np.uint32(value1 & _LOW))
                else:
                    for j in range(number):
                        out[count + j] = long_ids[np.int64(value0) + j]
                count += number
                done += 1
                continue
            start, length = np.int64(batch[START + i]), np.int64(batch[LENGTH + i])
            if length > SHORT:
                reason = LONG_WORD
                break
            is_cached = length <= _LONGEST_CACHED
            if is_cached and not (
                has_room(slots, arena, used, length) and long_used + length <= long_ids.size
            ):
                reason = CACHE_FULL
                break
            number = encode_short(data, start, length, byte_ids, merges, out[count:], scratch)
            if number < 0:
                reason = BYTE_MISSING
                break
            if is_cached:
                slot = -1 - slot
                add_word(data, batch, i, slot, slots, arena, used)
                long_used = _remember(slots, slot, out, count, number, long_ids, long_used)
            count += number
            done += 1
        if reason == DONE:
            start = ends[done - 1] & OFFSET_MASK
    state[WORDS], state[START_OF_WORD], state[IDS], state[LONG_IDS] = done, start, count, long_used
    return reason


@kernel
def encode_words(data: Bytes, ends: Ends, num_ends: int, out: Ids, handles: Handles) -> int:
    """As `_encode_words`, for words that were scanned before."""
    return _encode_words(data, ends, num_ends, out, *_arrays(handles))


@kernel
def encode_gpt2(
    data: Bytes, start: int, stop: int, cuts: Cuts, out: Ids, handles: Handles, goes_on: bool
) -> int:
    """Scan by GPT-2's pattern and encode, in one go.

    Returns the number of ids; or, less than 0, what must be mended before it `goes_on`.
    """
    arrays = _arrays(handles)
    state = as_int64s(handles[18], handles[19])
    classes = as_bytes(handles[20], handles[21])
    ends = as_int64s(handles[22], handles[23])
    if not goes_on:
        state[WORDS] = state[NUM_ENDS] = state[IDS] = state[NEXT_CUT] = state[CUTS_MET] = 0
        state[SCANNED] = start
    while True:
        if state[WORDS] == state[NUM_ENDS]:
            if state[SCANNED] >= stop and state[NEXT_CUT] >= cuts.shape[0]:
                return state[IDS]
            state[WORDS] = 0
            state[START_OF_WORD] = state[SCANNED]
            state[NUM_ENDS], state[SCANNED], state[NEXT_CUT] = scan_words_gpt2(
                data, classes, state[SCANNED], stop, cuts, state[NEXT_CUT], ends
            )
        reason = _encode_words(data, ends, state[NUM_ENDS], out, *arrays)
        if reason != DONE:
            return -reason
