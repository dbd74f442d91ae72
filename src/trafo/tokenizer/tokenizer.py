"""Tokenizer: the public face. Text in, ids out, and back.

    tokenizer = Tokenizer.load("my-tokenizer")
    ids = tokenizer.encode("Hello world")
    assert tokenizer.decode(ids) == "Hello world"

A tokenizer may be used by many threads at once. Building one compiles the kernels (once on a
machine) and makes the buffers, so that encoding needs little more memory than its result.
"""

from __future__ import annotations

import codecs
import ctypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np

from trafo.errors import InputError, require_lists
from trafo.tokenizer.encoding.encoder import BUFFER, Encoder, Merges
from trafo.tokenizer.formats.gpt2 import read_gpt2
from trafo.tokenizer.formats.load import load_any, save_folder
from trafo.tokenizer.formats.spec import TokenizerSpec, content_hash, with_special_tokens
from trafo.tokenizer.kernels.arrays import Bytes, Ids, Specials
from trafo.tokenizer.kernels.bpe import SHORT
from trafo.tokenizer.kernels.encode import SLACK
from trafo.tokenizer.reading.workers import Pool, default_workers, map_in_order
from trafo.tokenizer.words.cutter import Cutter
from trafo.tokenizer.words.scanner import Scanner
from trafo.tokenizer.words.specials import NO_SPECIALS, SpecialFinder

SpecialPolicy = Literal["allow", "ignore", "refuse"]

_MANY_SPECIALS = 16  # from here on, looking for one after the other takes longer than for all
_STEP = BUFFER // 8  # characters of a text that are taken in at a time
_CHUNK = 1 << 20  # bytes of a long text that one thread encodes at a time


class Tokenizer:
    """A byte-level BPE tokenizer.

    Special tokens that the vocabulary lacks are appended to it. What happens to special tokens
    inside a text is the caller's choice, by the argument `special`: `allow` encodes them as their
    ids, `ignore` as ordinary text (for text from strangers), `refuse` raises InputError.
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Iterable[tuple[bytes, bytes]],
        special_tokens: Iterable[str] | None = None,
        *,
        pattern: str = "gpt2",
        whole_words: bool = False,
    ) -> None:
        spec = TokenizerSpec(dict(vocab), list(merges), {}, pattern, whole_words)
        self._build(with_special_tokens(spec, special_tokens or ()))

    @classmethod
    def from_spec(cls, spec: TokenizerSpec) -> Tokenizer:
        """From what a file format or a training gives."""
        tokenizer = cls.__new__(cls)
        tokenizer._build(spec)
        return tokenizer

    @classmethod
    def from_files(
        cls,
        vocab_path: str | Path,
        merges_path: str | Path,
        special_tokens: Iterable[str] | None = None,
    ) -> Tokenizer:
        """From GPT-2's `vocab.json` and `merges.txt`."""
        spec = read_gpt2(Path(vocab_path), Path(merges_path))
        return cls.from_spec(with_special_tokens(spec, special_tokens or ()))

    @classmethod
    def load(
        cls,
        path: str | Path,
        special_tokens: Iterable[str] | None = None,
        *,
        pattern: str | None = None,
    ) -> Tokenizer:
        """From a folder or file in any format that trafo reads.

        `pattern` is for files that do not name theirs, such as tiktoken's rank files:
        `Tokenizer.load("tokenizer.model", pattern="llama3")`.
        """
        return cls.from_spec(load_any(path, pattern=pattern, special_tokens=special_tokens))

    def save(self, folder: str | Path) -> None:
        """Write trafo's folder, which Hugging Face's `tokenizers` reads too."""
        save_folder(self.spec, folder)

    def _build(self, spec: TokenizerSpec) -> None:
        self.spec = spec
        self.hash = content_hash(spec)
        self._vocab_size = max(spec.vocab, default=-1) + 1
        self._finder = SpecialFinder(list(spec.special_tokens))
        self._merges = Merges.from_spec(spec)
        special_ids = list(spec.special_tokens.values())
        self._encoders = Pool(lambda: Encoder(self.pattern, self._merges, special_ids))
        self._load_kernels()

    def _load_kernels(self) -> None:
        """Have every kernel ready, so that encoding within little memory needs none of it."""
        text = next(iter(self._finder.tokens), "") + "!" * (self._finder.longest + SHORT + 1)
        for is_end in (False, True):
            with suppress(InputError):  # the vocabulary may lack these bytes
                pending = bytearray(text.encode())
                self._encode_certain(pending, self.new_cutter(), "allow", is_end=is_end)

    def encoder(self) -> AbstractContextManager[Encoder]:
        """An encoder that no other thread uses meanwhile; its cache is kept for the next user."""
        return self._encoders.borrow()

    def new_cutter(self, special: SpecialPolicy = "allow") -> Cutter:
        """Finds where a long text may be cut into chunks that are encoded apart; for one thread."""
        return Cutter(Scanner(self.pattern), self.special_finder(special))

    # What it consists of

    @property
    def vocab(self) -> dict[int, bytes]:
        """The bytes of each id."""
        return self.spec.vocab

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The merges in order of rank."""
        return self.spec.merges

    @property
    def special_tokens(self) -> dict[str, int]:
        """The id of each special token."""
        return self.spec.special_tokens

    @property
    def pattern(self) -> str:
        """The split pattern: a name or a regular expression."""
        return self.spec.pattern

    @property
    def vocab_size(self) -> int:
        """One more than the largest id: what an embedding needs."""
        return self._vocab_size

    def __repr__(self) -> str:
        return f"Tokenizer({len(self.vocab):,} tokens, pattern={self.pattern!r}, {self.hash[:12]})"

    # Text to ids

    def encode(self, text: str, special: SpecialPolicy = "allow") -> list[int]:
        """The ids of a text."""
        raw = _utf8(text)
        if len(raw) > BUFFER:
            return _as_list(self._encode_long(text, special))
        data = np.frombuffer(raw, np.uint8)
        specials = self._find_specials(text, data, special)
        encoder = self._encoders.take()
        try:
            count = encoder.encode(data, 0, len(raw), specials, encoder.buffer)
            return _as_list(encoder.buffer[:count])
        finally:
            self._encoders.give_back(encoder)

    def encode_array(self, text: str, special: SpecialPolicy = "allow") -> Ids:
        """The ids of a text as an array of uint32; a long text is encoded by all cores."""
        if isinstance(text, str) and len(text) > BUFFER:
            return self._encode_long(text, special)
        return np.array(self.encode(text, special), np.uint32)

    def encode_batch(
        self, texts: Sequence[str], special: SpecialPolicy = "allow"
    ) -> list[list[int]]:
        """The ids of each text, on all cores."""
        require_lists(texts=texts)
        workers = default_workers()
        groups = [texts[i::workers] for i in range(workers)]
        ids = map_in_order(lambda group: [self.encode(t, special) for t in group], groups, workers)
        result: list[list[int]] = [[]] * len(texts)
        for i, encoded in enumerate(ids):
            result[i::workers] = encoded
        return result

    def encode_iterable(
        self, texts: Iterable[str], special: SpecialPolicy = "allow"
    ) -> Iterator[int]:
        """The ids of all texts joined, lazily and in constant memory.

        The result does not depend on how the text is divided into strings. (With a regular
        expression of your own, everything between two special tokens is held in memory.) So a
        single string will do, too.
        """
        cutter = self.new_cutter(special)
        pending = bytearray()
        wanted = BUFFER // 2
        for text in texts:
            for i in range(0, len(text), _STEP):
                pending += _utf8(text[i : i + _STEP])
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
        self._check_refused(specials, special)
        encoder = self._encoders.take()
        try:
            room = encoder.buffer if end <= BUFFER else np.empty(end + SLACK, np.uint32)
            count = encoder.encode(data, 0, end, specials, room)
            return _as_list(room[:count]), end
        finally:
            self._encoders.give_back(encoder)

    def _encode_long(self, text: str, special: SpecialPolicy) -> Ids:
        """Cut a long text into chunks, encode them side by side, and put the ids in order."""
        data = _utf8_view(text)
        ids = np.empty(len(data), np.uint32)
        count = 0

        def encode(chunk: tuple[int, int, Specials]) -> Ids:
            start, stop, specials = chunk
            self._check_refused(specials, special)
            room = np.empty(stop - start + SLACK, np.uint32)
            with self.encoder() as encoder:
                return room[: encoder.encode(data, start, stop, specials, room)]

        chunks = _chunks(data, self.new_cutter(special))
        for found in map_in_order(encode, chunks, default_workers()):
            ids[count : count + len(found)] = found
            count += len(found)
        ids.resize(count, refcheck=False)  # gives the rest of the memory back without a copy
        return ids

    # Special tokens in the text

    def special_finder(self, special: SpecialPolicy) -> SpecialFinder:
        """The special tokens to look for in a text."""
        _check_choice(special)
        if special == "ignore":
            return SpecialFinder([], self._finder.document_end)
        return self._finder

    def _find_specials(self, text: str, data: Bytes, special: SpecialPolicy) -> Specials:
        """The special tokens in a short text; mostly none, which a look at the text tells."""
        if special != "allow":
            _check_choice(special)
        if special == "ignore":
            return NO_SPECIALS
        tokens = self._finder.tokens
        if len(tokens) < _MANY_SPECIALS and not any(token in text for token in tokens):
            return NO_SPECIALS
        specials = self._finder.find(data, 0, len(data))
        self._check_refused(specials, special)
        return specials

    def _check_refused(self, specials: Specials, special: SpecialPolicy) -> None:
        if special == "refuse" and len(specials):
            token = self._finder.tokens[int(specials[0, 2])]
            raise InputError(
                f"the text contains the special token {token!r}",
                hint="special='ignore' takes it as plain text, special='allow' as the token",
            )

    # Ids to text

    def decode_bytes(self, ids: Iterable[int]) -> bytes:
        """The bytes that ids stand for; a flat array or tensor will do."""
        try:
            return b"".join(map(self.vocab.__getitem__, _as_iterable(ids)))
        except KeyError as error:
            raise InputError(
                f"{error.args[0]!r} is not an id of this tokenizer",
                hint=f"its ids are whole numbers from 0 to {self.vocab_size - 1:,}",
            ) from None
        except TypeError:  # it cannot be gone through, or holds rows
            raise InputError(
                f"{type(ids).__name__} is not a flat list of ids",
                hint="decode the rows of a batch one by one",
            ) from None

    def decode(self, ids: Iterable[int]) -> str:
        """The text that ids stand for; bytes that are not valid UTF-8 become U+FFFD."""
        return self.decode_bytes(ids).decode("utf-8", errors="replace")

    def decode_stream(self, ids: Iterable[int]) -> Iterator[str]:
        """The text as ids come in, never half a character."""
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        for token_id in _as_iterable(ids):
            text = decoder.decode(self.decode_bytes([token_id]))
            if text:
                yield text
        text = decoder.decode(b"", final=True)
        if text:
            yield text


def _check_choice(special: str) -> None:
    if special not in ("allow", "ignore", "refuse"):
        raise InputError(
            f"special={special!r} is not known", hint="use 'allow', 'ignore' or 'refuse'"
        )


def _as_iterable(ids: Any) -> Iterable[int]:
    """Arrays and tensors as lists, because their items are not Python's own numbers."""
    plain: Iterable[int] = ids.tolist() if hasattr(ids, "tolist") else ids
    return plain


def _as_list(ids: Ids) -> list[int]:
    return ids.tolist()  # type: ignore[no-any-return]  # as numpy's annotations have it


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except AttributeError:
        raise InputError(f"a text is needed, not {type(text).__name__}") from None
    except UnicodeEncodeError as error:
        raise InputError(
            f"the text has a lone surrogate, U+{ord(text[error.start]):04X}: not a character",
            where=f"character {error.start:,}",
            hint="read the text with the right encoding, or replace it by U+FFFD",
        ) from None


def _utf8_view(text: str) -> Bytes:
    """The bytes of a text without a copy; the text must outlive them.

    Python keeps ASCII as these very bytes, and the UTF-8 of any other text beside it once asked.
    """
    size = ctypes.c_ssize_t()
    try:
        address = _as_utf8(text, ctypes.byref(size))
    except UnicodeEncodeError:
        _utf8(text)  # raises the error that says where
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
