"""Words -> token ids, through a cache of words met before.

Text repeats its words, so most are answered by one look-up. When the cache is full it starts
anew, so that its memory is bounded and it follows a text that changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trafo.errors import FormatError, InputError
from trafo.tokenizer.kernels.bpe import (
    NO_ID,
    SCRATCH_PER_BYTE,
    SHORT,
    Ids,
    MergeTable,
    fill_merge_table,
)
from trafo.tokenizer.kernels.encode import (
    CACHE_FULL,
    DONE,
    SLACK,
    WORD_TOO_LONG,
    encode_words,
    enter_words,
)
from trafo.tokenizer.kernels.scan import OFFSET_MASK, Cuts
from trafo.tokenizer.kernels.scan_gpt2 import Ends
from trafo.tokenizer.kernels.utf8 import Bytes
from trafo.tokenizer.kernels.word_table import new_batch, new_table
from trafo.tokenizer.parts import TokenizerParts
from trafo.tokenizer.scan import Scanner

_CACHE_CAPACITY = 1 << 18
_CACHE_ARENA = 1 << 20
_LONG_IDS = 1 << 20
_BUFFER = 1 << 13


@dataclass(frozen=True)
class Merges:
    """A vocabulary and its merges as the kernels read them; shared by all threads."""

    table: MergeTable
    byte_ids: Ids
    whole_words: Sequence[tuple[bytes, int]]  # words that are a token whatever the merges say

    @classmethod
    def from_parts(cls, parts: TokenizerParts) -> "Merges":
        """From a tokenizer's parts; a merge of tokens that the vocabulary lacks is refused."""
        ids = parts.ordinary_tokens()
        byte_ids = {token[0]: token_id for token, token_id in ids.items() if len(token) == 1}
        merges = []
        for left, right in parts.merges:
            try:
                merges.append((ids[left], ids[right], ids[left + right]))
            except KeyError as error:
                raise FormatError(
                    f"the vocabulary lacks {error.args[0]!r}",
                    where=f"merge of {left!r} and {right!r}",
                    hint="vocabulary and merges must belong to the same tokenizer",
                ) from None
        return cls.from_ids(byte_ids, merges, list(ids.items()) if parts.whole_words else ())

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

    def __init__(
        self,
        pattern: str,
        merges: Merges,
        special_ids: Sequence[int],
        document_end: int = int(NO_ID),
    ) -> None:
        """`document_end` is written at each end of a document that is among the cuts."""
        self._scanner = Scanner(pattern)
        self._merges = merges
        self._special_ids = np.array([*special_ids, document_end], np.uint32)
        self._cache = new_table(_CACHE_CAPACITY, _CACHE_ARENA)
        self._long_ids = np.empty(_LONG_IDS, np.uint32)
        self._batch = new_batch()
        self._scratch = np.empty(SCRATCH_PER_BYTE * SHORT, np.int64)
        self.buffer = np.empty(_BUFFER + SLACK, np.uint32)  # for the ids of a short text
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
                reason = encode_words(
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
                if reason == DONE:
                    break
                self._make_room(reason, data, ends)
        return int(state[2])

    def _make_room(self, reason: int, data: Bytes, ends: Ends) -> None:
        done, start = int(self._state[0]), int(self._state[1])
        stop = int(ends[done]) & OFFSET_MASK
        if reason == CACHE_FULL:
            self._start_cache()
        elif reason == WORD_TOO_LONG:
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
        slots, _, used = self._cache
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
        enter_words(text, ends, ids, *self._cache, self._batch)
