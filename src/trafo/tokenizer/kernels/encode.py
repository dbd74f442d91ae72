"""The loop of encoding: words -> ids through the cache.

Text repeats its words, so nearly all are answered by one look-up in a word table. The loop is
arranged for that case: 32 words at a time get their keys, and their cache lines are asked for, and
then each answer is written as three ids whatever their number, without a branch. The count then
moves on by the true number, and the next word overwrites what was too much (hence SLACK).

A word that the cache lacks is encoded by `bpe.py` and kept. What the loop cannot do (the cache is
full, a word is too long, a byte has no token) makes it return the reason. Python resolves that and
calls again, and the loop resumes with the word at state[WORDS].

A slot of the cache holds up to three ids itself; more are kept in an array beside it.

    value 0: id, id << 32      or, for more than three ids, their place in the arena
    value 1: id, number << 32
"""

from typing import NamedTuple

import numpy as np

from trafo.runtime.kernels import kernel, subkernel
from trafo.tokenizer.kernels.arrays import Bytes, Ends, Ids, Int64s, Specials, Uint64s
from trafo.tokenizer.kernels.bits import get, put
from trafo.tokenizer.kernels.bpe import NO_ID, SHORT, encode_short
from trafo.tokenizer.kernels.pair_table import PairTable
from trafo.tokenizer.kernels.scan import OFFSET_MASK, scan_words_gpt2
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
from trafo.tokenizer.kernels.workspace import Handles, unpacker

SLACK = 3  # ids that may be written after the last one

# What the state holds: words encoded, where the next one begins, ids written, ids in the arena;
# of the scan: ends found, how far it has come, the next special token; special tokens written.
WORDS, START_OF_WORD, IDS, LONG_IDS, NUM_ENDS, SCANNED, NEXT_SPECIAL, SPECIALS_MET = range(8)

# Why `encode_words` came back.
DONE, CACHE_FULL, LONG_WORD, BYTE_MISSING = range(4)

_LONGEST_CACHED = 64  # longer words hardly ever come again
_INLINE_IDS = 3
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)


class EncoderArrays(NamedTuple):
    """What an encoder keeps from call to call."""

    slots: Slots  # the cache of words: a word table
    arena: Bytes
    used: Int64s
    long_ids: Ids  # of words with more ids than a slot holds
    merges: PairTable
    byte_ids: Ids
    special_ids: Ids
    batch: Batch
    scratch: Uint64s
    state: Int64s
    classes: Bytes
    ends: Ends
    places: Int64s  # the number of ids before each special token


_unpack = unpacker(EncoderArrays)


@kernel
def enter_words(text: Bytes, ends: Ends, ids: Ids, handles: Handles) -> None:
    """Put words of one id each into the cache, which has room for them."""
    arrays = _unpack(handles)
    slots, arena, batch = arrays.slots, arrays.arena, arrays.batch
    start = np.int64(0)
    for index in range(ends.size):
        make_keys(text, start, ends, index, 1, slots, batch)
        slot = find_word(text, batch, 0, slots, arena)
        if slot < 0:
            slot = -1 - slot
            add_word(text, batch, 0, slot, slots, arena, arrays.used)
        slots[slot + 2] = np.uint64(ids[index])
        slots[slot + 3] = np.uint64(1) << _HALF
        start = ends[index]


@subkernel
def _store_ids(
    slots: Slots, slot: int, ids: Ids, first: int, count: int, long_ids: Ids, used: int
) -> int:
    """Store the ids of a word in its slot, and return how much of the arena is used."""
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


@subkernel
def _encode_unknown(
    data: Bytes, index: int, slot: int, out: Ids, count: int, arrays: EncoderArrays
) -> int:
    """Encode a word of the batch that the cache lacks, and keep it in this free slot.

    Returns the number of ids; or, less than 0, what must be done before it can be encoded.
    """
    slots, arena, used, batch = arrays.slots, arrays.arena, arrays.used, arrays.batch
    long_ids, state = arrays.long_ids, arrays.state
    start, length = np.int64(batch[START + index]), np.int64(batch[LENGTH + index])
    if length > SHORT:
        return -LONG_WORD
    is_cached = length <= _LONGEST_CACHED
    has_space = has_room(slots, arena, used, length)
    if is_cached and not (has_space and state[LONG_IDS] + length <= long_ids.size):
        return -CACHE_FULL
    number = encode_short(
        data, start, length, arrays.byte_ids, arrays.merges, out[count:], arrays.scratch
    )
    if number < 0:
        return -BYTE_MISSING
    if is_cached:
        add_word(data, batch, index, slot, slots, arena, used)
        state[LONG_IDS] = _store_ids(slots, slot, out, count, number, long_ids, state[LONG_IDS])
    return number


@subkernel
def _encode_words(
    data: Bytes,
    ends: Ends,
    num_ends: int,
    out: Ids,
    arrays: EncoderArrays,
) -> int:
    """Encode ends[state[WORDS] : num_ends], the first of which begins at state[START_OF_WORD].

    `places` gets the number of ids before each special token; one whose id is NO_ID leaves no
    other trace. Returns DONE, or what must be done before the word at state[WORDS] can be
    encoded.
    """
    slots, batch, long_ids, state = arrays.slots, arrays.batch, arrays.long_ids, arrays.state
    done, start, count = state[WORDS], state[START_OF_WORD], state[IDS]
    reason = DONE
    while done < num_ends and reason == DONE:
        num_words = min(BATCH, num_ends - done)
        make_keys(data, start, ends, done, num_words, slots, batch)
        for i in range(num_words):
            slot = np.int64(get(batch, HOME + i))
            if not is_at_home(batch, i, slots):
                if batch[LENGTH + i] == 0:
                    out[count] = arrays.special_ids[np.int64(batch[KEY0 + i])]
                    arrays.places[state[SPECIALS_MET]] = count
                    state[SPECIALS_MET] += 1
                    count += out[count] != NO_ID
                    done += 1
                    continue
                slot = find_word(data, batch, i, slots, arrays.arena)
            if slot >= 0:  # not in a function: LLVM does not inline it, and it takes twice as long
                value0, value1 = get(slots, slot + 2), get(slots, slot + 3)
                number = np.int64(value1 >> _HALF)
                if number <= _INLINE_IDS:  # three are written whatever the number: no branch
                    put(out, count, np.uint32(value0 & _LOW))
                    put(out, count + 1, np.uint32(value0 >> _HALF))
                    put(out, count + 2, np.uint32(value1 & _LOW))
                else:
                    for j in range(number):
                        out[count + j] = long_ids[np.int64(value0) + j]
            else:
                number = _encode_unknown(data, i, -1 - slot, out, count, arrays)
                if number < 0:
                    start, reason = np.int64(batch[START + i]), -number
                    break
            count += number
            done += 1
        if reason == DONE:
            start = ends[done - 1] & OFFSET_MASK
    state[WORDS], state[START_OF_WORD], state[IDS] = done, start, count
    return reason


@kernel
def encode_words(data: Bytes, ends: Ends, num_ends: int, out: Ids, handles: Handles) -> int:
    """As `_encode_words`, for words that were scanned before."""
    return _encode_words(data, ends, num_ends, out, _unpack(handles))


@kernel
def encode_gpt2(
    data: Bytes,
    start: int,
    stop: int,
    specials: Specials,
    out: Ids,
    handles: Handles,
    resumes: bool,
) -> int:
    """Scan by GPT-2's pattern and encode.

    Returns the number of ids; or, less than 0, what must be done before another call `resumes`.
    """
    arrays = _unpack(handles)
    state, ends = arrays.state, arrays.ends
    if not resumes:
        state[WORDS] = state[NUM_ENDS] = state[IDS] = state[NEXT_SPECIAL] = state[SPECIALS_MET] = 0
        state[SCANNED] = start
    while True:
        if state[WORDS] == state[NUM_ENDS]:
            if state[SCANNED] >= stop and state[NEXT_SPECIAL] >= specials.shape[0]:
                return state[IDS]
            state[WORDS] = 0
            state[START_OF_WORD] = state[SCANNED]
            state[NUM_ENDS], state[SCANNED], state[NEXT_SPECIAL] = scan_words_gpt2(
                data, arrays.classes, state[SCANNED], stop, specials, state[NEXT_SPECIAL], ends
            )
        reason = _encode_words(data, ends, state[NUM_ENDS], out, arrays)
        if reason != DONE:
            return -reason
