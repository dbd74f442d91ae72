"""Words -> token ids, through a cache of words met before.

Text repeats its words, so most are answered by one look-up. When the cache is full it is
emptied, so that its memory is bounded and it adapts to a text that changes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from trafo.errors import InputError
from trafo.runtime.machine import available_cores
from trafo.runtime.threads import Pool, map_in_order
from trafo.tokenizer.formats.spec import TokenizerSpec, merges_as_ids
from trafo.tokenizer.kernels.arrays import Bytes, Ends, Ids, Int64s, Specials
from trafo.tokenizer.kernels.bpe import (
    NO_ID,
    SCRATCH_PER_BYTE,
    SHORT,
    encode_each,
    encode_long,
)
from trafo.tokenizer.kernels.encode import (
    CACHE_FULL,
    IDS,
    LONG_IDS,
    LONG_WORD,
    SLACK,
    SPECIALS_MET,
    START_OF_WORD,
    WORDS,
    EncoderArrays,
    encode_gpt2,
    encode_words,
    enter_words,
)
from trafo.tokenizer.kernels.pair_table import PairTable, fill_pair_table, new_pair_table
from trafo.tokenizer.kernels.scan import OFFSET_MASK
from trafo.tokenizer.kernels.unicode_classes import character_classes
from trafo.tokenizer.kernels.word_table import WordTable, new_batch, new_table
from trafo.tokenizer.kernels.workspace import Workspace
from trafo.tokenizer.pure_python import (
    SpecialPolicy,
    check_special_policy,
    special_token_error,
    utf8,
)
from trafo.tokenizer.words import NO_SPECIALS, Cutter, Scanner, SpecialFinder

_CACHE_CAPACITY = 1 << 18
_CACHE_ARENA = 1 << 20
_LONG_IDS = 1 << 20
_WORDS_AT_ONCE = 1 << 14
_SHOWN = 60  # bytes of a word in an error
_HALF = np.uint64(32)

BUFFER = 1 << 13  # bytes of text whose ids fit into an encoder's own buffer


@dataclass(frozen=True)
class Merges:
    """A vocabulary and its merges as the kernels read them, shared by all threads."""

    table: PairTable
    byte_ids: Ids
    whole_tokens: Sequence[tuple[bytes, int]]  # words that are a token whatever the merges say

    @classmethod
    def from_spec(cls, spec: TokenizerSpec) -> Merges:
        """Make them from a spec, and refuse a merge of tokens that the vocabulary lacks."""
        ids = spec.ordinary_tokens()
        byte_ids = {token[0]: token_id for token, token_id in ids.items() if len(token) == 1}
        merges = merges_as_ids(spec, ids)
        return cls.from_ids(byte_ids, merges, list(ids.items()) if spec.ignore_merges else ())

    @classmethod
    def from_ids(
        cls,
        byte_ids: dict[int, int],
        merges: Sequence[tuple[int, int, int]],
        whole_tokens: Sequence[tuple[bytes, int]] = (),
    ) -> Merges:
        """From the id of each byte and the merges as (left id, right id, merged id), in order."""
        table = new_pair_table(len(merges))
        left, right, merged = np.array(merges, np.uint64).reshape(-1, 3).T
        ranks = np.arange(len(merges), dtype=np.uint64)
        fill_pair_table(table, left << _HALF | right, ranks << _HALF | merged)
        ids_of_bytes = np.full(256, NO_ID, np.uint32)
        for byte, token_id in byte_ids.items():
            ids_of_bytes[byte] = token_id
        return cls(table, ids_of_bytes, whole_tokens)

    def encode_each(self, text: Bytes, ends: Ends) -> tuple[Ids, Ends]:
        """The ids that BPE makes of each word, end to end, and where each word ends in them."""
        ids, id_ends = np.empty(len(text), np.uint32), np.empty(len(ends), np.int64)
        longest = int(np.diff(ends, prepend=0).max(initial=SHORT))
        scratch = np.empty(SCRATCH_PER_BYTE * longest, np.int64)
        total = encode_each(text, ends, self.byte_ids, self.table, ids, id_ends, scratch)
        return ids[:total], id_ends


class Encoder:
    """Encodes text into a buffer of the caller's. One for each thread."""

    def __init__(self, pattern: str, merges: Merges, special_ids: Sequence[int]) -> None:
        self._scanner = Scanner(pattern)
        self._is_gpt2 = pattern == "gpt2"
        self._merges = merges
        self._arrays = arrays = Workspace(EncoderArrays)
        arrays["merges"] = merges.table
        arrays["byte_ids"] = merges.byte_ids
        arrays["special_ids"] = np.array([*special_ids, NO_ID], np.uint32)
        arrays["long_ids"] = np.empty(_LONG_IDS, np.uint32)
        arrays["batch"] = new_batch()
        arrays["scratch"] = np.empty(SHORT, np.uint64)
        arrays["state"] = np.zeros(8, np.int64)
        arrays["classes"] = character_classes()
        arrays["ends"] = np.empty(_WORDS_AT_ONCE, np.int64)
        arrays["places"] = np.empty(0, np.int64)
        arrays["slots"], arrays["arena"], arrays["used"] = _new_word_table(merges)
        self._reset_cache()
        self._room = np.empty(0, np.uint32)
        self.buffer = np.empty(BUFFER + SLACK, np.uint32)  # for the ids of a short text

    def encode(self, data: Bytes, start: int, stop: int, specials: Specials, out: Ids) -> int:
        """Write the ids of data[start:stop], valid UTF-8, to `out` and return how many.

        `out` has room for stop - start + SLACK ids, and one more for each end of a document.
        """
        if len(specials) > self._arrays["places"].size:
            self._arrays["places"] = np.empty(2 * len(specials), np.int64)
        if not self._is_gpt2:
            return self._encode_words(data, start, stop, specials, out)
        handles = self._arrays.handles
        count = encode_gpt2(data, start, stop, specials, out, handles, False)
        while count < 0:
            self._resolve(-count, data, self._arrays["ends"], out)
            count = encode_gpt2(data, start, stop, specials, out, handles, True)
        return int(count)

    def encode_chunk(self, data: Bytes, specials: Specials, document_end: int = int(NO_ID)) -> Ids:
        """The ids of a chunk, in a buffer that the next call overwrites.

        `document_end` is the id to write at the end of each document; NO_ID for none.
        """
        self._arrays["special_ids"][-1] = document_end
        needed = len(data) + len(specials) + SLACK
        if len(self._room) < needed:
            self._room = np.empty(needed + needed // 4, np.uint32)
        return self._room[: self.encode(data, 0, len(data), specials, self._room)]

    def special_positions(self) -> Int64s:
        """How many ids are before each special token of the text encoded last."""
        return self._arrays["places"][: self._arrays["state"][SPECIALS_MET]]

    def _encode_words(
        self, data: Bytes, start: int, stop: int, specials: Specials, out: Ids
    ) -> int:
        """`encode` for any pattern: scan, then encode, some thousand words at a time."""
        state = self._arrays["state"]
        state[IDS] = state[SPECIALS_MET] = 0
        for first, ends in self._scanner.words(data, start, stop, specials):
            state[WORDS], state[START_OF_WORD] = 0, first
            while reason := encode_words(data, ends, len(ends), out, self._arrays.handles):
                self._resolve(reason, data, ends, out)
        return int(state[IDS])

    def _resolve(self, reason: int, data: Bytes, ends: Ends, out: Ids) -> None:
        """Do for the next word what the kernel cannot, or raise if it cannot be encoded."""
        state = self._arrays["state"]
        start, stop = int(state[START_OF_WORD]), int(ends[state[WORDS]]) & OFFSET_MASK
        if reason == CACHE_FULL:
            self._reset_cache()
            return
        count = -1
        if reason == LONG_WORD:
            count = self._encode_long(data, start, stop, out[state[IDS] :])
        if count < 0:
            raise self._missing_byte(data[start:stop])
        state[WORDS] += 1
        state[START_OF_WORD] = stop
        state[IDS] += count

    def _encode_long(self, data: Bytes, start: int, stop: int, out: Ids) -> int:
        scratch = np.empty(SCRATCH_PER_BYTE * (stop - start), np.int64)
        byte_ids, table = self._merges.byte_ids, self._merges.table
        return int(encode_long(data, start, stop - start, byte_ids, table, out, scratch))

    def _missing_byte(self, word: Bytes) -> InputError:
        known = self._merges.byte_ids != NO_ID
        missing = next(byte for byte in word.tolist() if not known[byte])
        return InputError(
            f"the vocabulary has no token for byte 0x{missing:02x}",
            where=f"word {word[:_SHOWN].tobytes().decode(errors='replace')!r}",
            hint="train or load a tokenizer whose vocabulary holds all 256 bytes",
        )

    def _reset_cache(self) -> None:
        self._arrays["slots"][:] = 0
        self._arrays["used"][:] = new_table(1, 0).used
        self._arrays["state"][LONG_IDS] = 0
        if self._merges.whole_tokens:
            self._enter_whole_tokens()

    def _enter_whole_tokens(self) -> None:
        """Begin the cache with the words that are a token as they are, whatever the merges say."""
        words = [word for word, _ in self._merges.whole_tokens]
        ids = np.array([token_id for _, token_id in self._merges.whole_tokens], np.uint32)
        text = np.frombuffer(b"".join(words), np.uint8)
        ends = np.cumsum([len(word) for word in words], dtype=np.int64)
        enter_words(text, ends, ids, self._arrays.handles)


def _new_word_table(merges: Merges) -> WordTable:
    """An empty cache with room for the words that are always in it, and many more."""
    num_bytes = sum(len(word) for word, _ in merges.whole_tokens)
    num_words = len(merges.whole_tokens)
    capacity = max(_CACHE_CAPACITY, 1 << (4 * num_words).bit_length())
    return new_table(capacity, _CACHE_ARENA + 2 * num_bytes + 16 * num_words)


_MANY_SPECIALS = 16  # from here on, looking for one after the other takes longer than for all
_STEP = BUFFER // 8  # characters of a text that are taken in at a time
_CHUNK = 1 << 20  # bytes of a long text that one thread encodes at a time
_NFC_GROWTH = 3  # times the bytes that a text can have after normalization


class CompiledEncoder:
    """Encodes texts of any length, in any number of threads."""

    def __init__(self, spec: TokenizerSpec) -> None:
        self._pattern = spec.pattern
        self.finder = SpecialFinder(
            list(spec.special_tokens), second_pass=spec.normalized_tokens, nfc=spec.nfc
        )
        self._no_specials = SpecialFinder([], self.finder.document_end, nfc=spec.nfc)
        merges = Merges.from_spec(spec)
        special_ids = list(spec.special_tokens.values())
        self._encoders = Pool(lambda: Encoder(spec.pattern, merges, special_ids))
        self.borrow = self._encoders.borrow
        self._load_kernels()

    def _load_kernels(self) -> None:
        """Have every kernel ready, so that encoding within little memory needs none of it."""
        text = next(iter(self.finder.tokens), "") + "!" * (self.finder.longest + SHORT + 1)
        for is_end in (False, True):
            with suppress(InputError):  # the vocabulary may lack these bytes
                pending = bytearray(text.encode())
                self._encode_certain(pending, self.new_cutter("allow"), "allow", is_end=is_end)

    def new_cutter(self, special: SpecialPolicy) -> Cutter:
        """Make what cuts a long text into chunks that are encoded apart, for one thread."""
        return Cutter(self._pattern, self.special_finder(special))

    def encode(self, text: str, special: SpecialPolicy) -> list[int]:
        """The ids of a text."""
        raw = utf8(text)
        if len(raw) > BUFFER:
            return _to_list(self.encode_long(text, special))
        data = np.frombuffer(raw, np.uint8)
        if self.finder.nfc:
            specials = self.special_finder(special).find(data, 0, len(raw))
            return _to_list(self._encode_part(data, 0, len(raw), specials, special))
        specials = self._find_specials(text, data, special)
        encoder = self._encoders.take()
        try:
            count = encoder.encode(data, 0, len(raw), specials, encoder.buffer)
            return _to_list(encoder.buffer[:count])
        finally:
            self._encoders.give_back(encoder)

    def encode_iterable(self, texts: Iterable[str], special: SpecialPolicy) -> Iterator[int]:
        """The ids of all texts joined, lazily and in constant memory."""
        cutter = self.new_cutter(special)
        pending = bytearray()
        wanted = BUFFER // 2
        for text in texts:
            for i in range(0, len(text), _STEP):
                pending += utf8(text[i : i + _STEP])
                if len(pending) >= wanted:
                    ids, used = self._encode_certain(pending, cutter, special, is_end=False)
                    yield from ids
                    del pending[:used]
                    # Nothing certain yet: look again when there is twice as much.
                    wanted = max(BUFFER // 2, 2 * len(pending))
        yield from self._encode_certain(pending, cutter, special, is_end=True)[0]

    def _encode_certain(
        self, pending: bytearray, cutter: Cutter, special: SpecialPolicy, *, is_end: bool
    ) -> tuple[list[int], int]:
        """The ids of as much as no further text can change, and how many bytes that is."""
        data = np.frombuffer(bytes(pending), np.uint8)
        end, specials = cutter.cut(data, 0, len(data), is_end=is_end)
        return _to_list(self._encode_part(data, 0, end, specials, special)), end

    def _encode_part(
        self, data: Bytes, start: int, stop: int, specials: Specials, special: SpecialPolicy
    ) -> Ids:
        """The ids of data[start:stop], which was cut out of a text."""
        if self.finder.nfc:
            data, specials = self.special_finder(special).normalize(data, start, stop, specials)
            start, stop = 0, len(data)
        self._check_refused(specials, special)
        room = np.empty(stop - start + SLACK, np.uint32)
        with self._encoders.borrow() as encoder:
            return room[: encoder.encode(data, start, stop, specials, room)]

    def encode_long(self, text: str, special: SpecialPolicy) -> Ids:
        """Cut a long text into chunks, encode them side by side, and put the ids in order."""
        data = _view_utf8(text)
        ids = np.empty(len(data) * (_NFC_GROWTH if self.finder.nfc else 1), np.uint32)
        count = 0
        chunks = _cut_into_chunks(data, self.new_cutter(special))
        encoded = map_in_order(
            lambda chunk: self._encode_part(data, *chunk, special), chunks, available_cores()
        )
        for found in encoded:
            ids[count : count + len(found)] = found
            count += len(found)
        ids.resize(count, refcheck=False)  # gives the rest of the memory back without a copy
        return ids

    def special_finder(self, special: SpecialPolicy) -> SpecialFinder:
        """The special tokens to look for in a text."""
        check_special_policy(special)
        if special == "ignore":
            return self._no_specials
        return self.finder

    def _find_specials(self, text: str, data: Bytes, special: SpecialPolicy) -> Specials:
        """Find the special tokens in a short text, mostly none, which a look at it tells."""
        if special != "allow":
            check_special_policy(special)
        if special == "ignore":
            return NO_SPECIALS
        tokens = self.finder.tokens
        if len(tokens) < _MANY_SPECIALS and not any(token in text for token in tokens):
            return NO_SPECIALS
        specials = self.finder.find(data, 0, len(data))
        self._check_refused(specials, special)
        return specials

    def _check_refused(self, specials: Specials, special: SpecialPolicy) -> None:
        if special == "refuse" and len(specials):
            raise special_token_error(self.finder.tokens[int(specials[0, 2])])


def _to_list(ids: Ids) -> list[int]:
    return ids.tolist()  # type: ignore[no-any-return]  # as numpy's annotations have it


def _view_utf8(text: str) -> Bytes:
    """View the bytes of a text, which must outlive the view, without a copy.

    Python keeps ASCII as these very bytes, and the UTF-8 of any other text beside it once asked.
    """
    size = ctypes.c_ssize_t()
    try:
        address = _as_utf8(text, ctypes.byref(size))
    except UnicodeEncodeError:
        utf8(text)  # raises the error that says where
        raise
    view: Bytes = np.ctypeslib.as_array((ctypes.c_uint8 * size.value).from_address(address))
    view.flags.writeable = False
    return view


_as_utf8 = ctypes.pythonapi.PyUnicode_AsUTF8AndSize
_as_utf8.argtypes = [ctypes.py_object, ctypes.POINTER(ctypes.c_ssize_t)]
_as_utf8.restype = ctypes.c_void_p


def _cut_into_chunks(data: Bytes, cutter: Cutter) -> Iterator[tuple[int, int, Specials]]:
    """Chunks of about a megabyte that can be encoded apart: start, stop, special tokens."""
    start, size = 0, _CHUNK
    while start < len(data):
        stop = min(start + size, len(data))
        end, specials = cutter.cut(data, start, stop, is_end=stop == len(data))
        if end > start:
            yield start, end, specials
            start, size = end, _CHUNK
        else:
            size *= 2
