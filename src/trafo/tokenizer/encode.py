"""Words -> token ids, through a cache of words met before.

Text repeats its words, so most are answered by one look-up. A slot of the cache holds up to three
ids itself; more stand in an arena beside it. When the cache is full it starts anew, so that its
memory is bounded and it follows a text that changes.

    value 0: id, id << 32      or, for more than three ids, their place in the arena
    value 1: id, number << 32
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trafo.errors import InputError
from trafo.tokenizer.bpe import (
    NO_ID,
    SCRATCH_PER_BYTE,
    SHORT,
    Ids,
    MergeTable,
    Scratch,
    encode_word,
    fill_merge_table,
)
from trafo.tokenizer.kernels import kernel
from trafo.tokenizer.scan import OFFSET_MASK, Scanner
from trafo.tokenizer.scan_gpt2 import Ends
from trafo.tokenizer.specials import Cuts
from trafo.tokenizer.utf8 import Bytes
from trafo.tokenizer.word_table import (
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
    new_batch,
    new_table,
)

SLACK = 3  # ids that may be written behind the last one

_CACHE_CAPACITY = 1 << 18
_CACHE_ARENA = 1 << 20
_LONG_IDS = 1 << 20
_LONGEST_CACHED = 64  # longer words hardly ever come again

_INLINE_IDS = 3
_HALF = np.uint64(32)
_LOW = np.uint64(0xFFFFFFFF)

# Why `_encode_words` came back.
_DONE, _CACHE_FULL, _WORD_TOO_LONG, _BYTE_MISSING = range(4)


@dataclass(frozen=True)
class Merges:
    """A vocabulary and its merges as the kernels read them; shared by all threads."""

    table: MergeTable
    byte_ids: Ids
    whole_words: Sequence[tuple[bytes, int]]  # words that are a token without any merge

    @classmethod
    def from_ids(
        cls,
        byte_ids: dict[int, int],
        merges: Sequence[tuple[int, int, int]],
        whole_words: Sequence[tuple[bytes, int]] = (),
    ) -> "Merges":
        """From the id of each byte and the merges as (left id, right id, merged id), in order."""
        capacity = 1 << max(4, (2 * len(merges)).bit_length())
        table = np.empty(2 * capacity, np.uint64)
        fill_merge_table(table, np.array(merges, np.uint64).reshape(-1, 3))
        ids_of_bytes = np.full(256, NO_ID, np.uint32)
        for byte, token_id in byte_ids.items():
            ids_of_bytes[byte] = token_id
        return cls(table, ids_of_bytes, whole_words)


class Encoder:
    """Encodes text into a buffer of the caller's. One for each thread."""

    def __init__(self, scanner: Scanner, merges: Merges, special_ids: Sequence[int]) -> None:
        self._scanner = scanner
        self._merges = merges
        self._special_ids = np.array([*special_ids, 0], np.uint32)
        self._cache = new_table(_CACHE_CAPACITY, _CACHE_ARENA)
        self._long_ids = np.empty(_LONG_IDS, np.uint32)
        self._batch = new_batch()
        self._scratch = np.empty(SCRATCH_PER_BYTE * SHORT, np.int64)
        # done, start, number of ids, ids in the arena; in and out of the kernel
        self._state = np.zeros(4, np.int64)
        self._start_cache()

    def encode(self, data: Bytes, start: int, stop: int, cuts: Cuts, out: Ids) -> int:
        """Write the ids of data[start:stop], valid UTF-8, to `out`; returns how many.

        `out` has room for stop - start + SLACK ids, which is as many as there can be.
        """
        state = self._state
        state[2] = 0
        for first, ends in self._scanner.words(data, start, stop, cuts):
            state[0], state[1] = 0, first
            while True:
                reason = _encode_words(
                    data,
                    ends,
                    *self._cache,
                    self._long_ids,
                    self._merges.table,
                    self._merges.byte_ids,
                    self._special_ids,
                    self._batch,
                    self._scratch,
                    out,
                    state,
                )
                if reason == _DONE:
                    break
                self._make_room(reason, data, ends)
        return int(state[2])

    def _make_room(self, reason: int, data: Bytes, ends: Ends) -> None:
        done, start = int(self._state[0]), int(self._state[1])
        stop = int(ends[done]) & OFFSET_MASK
        if reason == _CACHE_FULL:
            self._start_cache()
        elif reason == _WORD_TOO_LONG:
            self._scratch = np.empty(SCRATCH_PER_BYTE * (stop - start), np.int64)
        else:
            known = self._merges.byte_ids != NO_ID
            missing = next(byte for byte in data[start:stop].tolist() if not known[byte])
            raise InputError(
                f"the vocabulary has no token for byte 0x{missing:02x}",
                where=repr(data[start:stop].tobytes().decode()),
                hint="train or load a tokenizer whose vocabulary holds all 256 bytes",
            )

    def _start_cache(self) -> None:
        slots, arena, used = self._cache
        slots[:] = 0
        used[:] = new_table(1, 0).used
        self._state[3] = 0
        if self._merges.whole_words:
            self._enter_whole_words()

    def _enter_whole_words(self) -> None:
        """Begin the cache with the words that are a token as they are, whatever the merges say."""
        words = [word for word, _ in self._merges.whole_words]
        ids = np.array([token_id for _, token_id in self._merges.whole_words], np.uint32)
        text = np.frombuffer(b"".join(words), np.uint8)
        ends = np.cumsum([len(word) for word in words], dtype=np.int64)
        capacity = max(_CACHE_CAPACITY, 1 << (4 * len(words)).bit_length())
        self._cache = new_table(capacity, _CACHE_ARENA + 2 * len(text) + 16 * len(words))
        _enter_words(text, ends, ids, *self._cache, self._batch)


@kernel
def _enter_words(
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
def _encode_words(
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

    Returns _DONE, or what must be mended before the word at state[0] can be encoded.
    """
    done, start, count, long_used = state[0], state[1], state[2], state[3]
    reason = _DONE
    while done < ends.size and reason == _DONE:
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
                reason = _WORD_TOO_LONG
                break
            cached = length <= _LONGEST_CACHED
            if cached and not (
                has_room(slots, arena, used, length) and long_used + length <= long_ids.size
            ):
                reason = _CACHE_FULL
                break
            number = encode_word(data, start, length, byte_ids, merges, out[count:], scratch)
            if number < 0:
                reason = _BYTE_MISSING
                break
            if cached:
                slot = -1 - slot
                add_word(data, batch, i, slot, slots, arena, used)
                long_used = _remember(slots, slot, out, count, number, long_ids, long_used)
            count += number
            done += 1
        if reason == _DONE:
            start = ends[done - 1] & OFFSET_MASK
    state[0], state[1], state[2], state[3] = done, start, count, long_used
    return reason
