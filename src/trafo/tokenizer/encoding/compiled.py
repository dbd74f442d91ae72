"""Text -> ids by the kernels, in any number of threads.

Building one loads the kernels (the first time on a machine it compiles them) and makes the
buffers, so that encoding needs little more memory than its result.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import suppress

import numpy as np

from trafo.errors import InputError
from trafo.runtime.machine import available_cores
from trafo.runtime.threads import Pool, map_in_order
from trafo.tokenizer.encoding.encoder import BUFFER, Encoder, Merges
from trafo.tokenizer.encoding.first import SpecialPolicy, check_choice, refusal_of_special, utf8
from trafo.tokenizer.formats.spec import TokenizerSpec
from trafo.tokenizer.kernels.arrays import Bytes, Ids, Specials
from trafo.tokenizer.kernels.bpe import SHORT
from trafo.tokenizer.kernels.encode import SLACK
from trafo.tokenizer.words.cutter import Cutter
from trafo.tokenizer.words.specials import NO_SPECIALS, SpecialFinder

_MANY_SPECIALS = 16  # from here on, looking for one after the other takes longer than for all
_STEP = BUFFER // 8  # characters of a text that are taken in at a time
_CHUNK = 1 << 20  # bytes of a long text that one thread encodes at a time
_NFC_GROWTH = 3  # times the bytes that a text can have after normalization


class CompiledEncoder:
    """Encodes texts of any length; `borrow` lends an encoder for chunks of another's."""

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
        """Finds where a long text may be cut into chunks that are encoded apart; for one thread."""
        return Cutter(self._pattern, self.special_finder(special))

    def encode(self, text: str, special: SpecialPolicy) -> list[int]:
        """The ids of a text."""
        raw = utf8(text)
        if len(raw) > BUFFER:
            return _as_list(self.encode_long(text, special))
        data = np.frombuffer(raw, np.uint8)
        if self.finder.nfc:
            specials = self.special_finder(special).find(data, 0, len(raw))
            return _as_list(self._encode_part(data, 0, len(raw), specials, special))
        specials = self._find_specials(text, data, special)
        encoder = self._encoders.take()
        try:
            count = encoder.encode(data, 0, len(raw), specials, encoder.buffer)
            return _as_list(encoder.buffer[:count])
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
        return _as_list(self._encode_part(data, 0, end, specials, special)), end

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
        data = _utf8_view(text)
        ids = np.empty(len(data) * (_NFC_GROWTH if self.finder.nfc else 1), np.uint32)
        count = 0
        chunks = _chunks(data, self.new_cutter(special))
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
        check_choice(special)
        if special == "ignore":
            return self._no_specials
        return self.finder

    def _find_specials(self, text: str, data: Bytes, special: SpecialPolicy) -> Specials:
        """The special tokens in a short text; mostly none, which a look at the text tells."""
        if special != "allow":
            check_choice(special)
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
            raise refusal_of_special(self.finder.tokens[int(specials[0, 2])])


def _as_list(ids: Ids) -> list[int]:
    return ids.tolist()  # type: ignore[no-any-return]  # as numpy's annotations have it


def _utf8_view(text: str) -> Bytes:
    """The bytes of a text without a copy; the text must outlive them.

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


def _chunks(data: Bytes, cutter: Cutter) -> Iterator[tuple[int, int, Specials]]:
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
