"""Files -> chunks of valid text that can be scanned each on its own, in any order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from trafo.errors import InputError
from trafo.tokenizer.kernels.arrays import Bytes, Specials
from trafo.tokenizer.kernels.utf8 import first_invalid
from trafo.tokenizer.reading.files import read_stretch
from trafo.tokenizer.reading.records import Errors
from trafo.tokenizer.reading.sources import BLOCK_SIZE, Block, Source
from trafo.tokenizer.words.cutter import Cutter, whole_characters
from trafo.tokenizer.words.scanner import Scanner
from trafo.tokenizer.words.specials import SpecialFinder

Item = TypeVar("Item")


_WINDOW = 4096  # bytes before the end of a stretch in which a safe place nearly always is


@dataclass(frozen=True, slots=True)
class Chunk:
    """Text that stands on its own.

    `specials` are its special tokens and, with the index after the last special token, the ends of
    its documents.
    """

    data: Bytes
    specials: Specials
    disk_bytes: int  # how much of the file has been read
    next_offset: int  # where the next chunk begins in the source's text
    is_last: bool  # of its source

    @property
    def num_bytes(self) -> int:
        return len(self.data)

    def read(self) -> Chunk:
        """What whoever takes a chunk calls, because it may be unread."""
        return self


@dataclass(frozen=True, slots=True)
class UnreadChunk:
    """A stretch of a file that is known to stand on its own, though nobody has looked inside."""

    chunker: Chunker
    source: Source
    offset: int
    num_bytes: int
    is_last: bool

    @property
    def next_offset(self) -> int:
        return self.offset + self.num_bytes

    @property
    def disk_bytes(self) -> int:
        return self.next_offset

    def read(self) -> Chunk:
        """Read it; any number of threads may do so at a time."""
        return self.chunker.read(self)


class Chunker:
    """Specials the text of sources into chunks of about `chunk_size` bytes."""

    def __init__(
        self,
        pattern: str,
        finder: SpecialFinder,
        errors: Errors = "strict",
        chunk_size: int = BLOCK_SIZE,
    ) -> None:
        self._cutter = Cutter(Scanner(pattern), finder)
        self._finder = finder
        self._errors = errors
        self._chunk_size = chunk_size

    def chunks(self, source: Source, offset: int = 0) -> Iterator[Chunk]:
        """The text of a source from `offset`, which is 0 or where a chunk ended."""
        return (chunk.read() for chunk in self.plan(source, offset))

    def plan(self, source: Source, offset: int = 0) -> Iterator[Chunk | UnreadChunk]:
        """The same, but reading is left to whoever takes a chunk, where that can be done."""
        if source.size and source.is_plain_file and self._errors == "strict":
            for chunk in self._unread_chunks(source, offset):
                yield chunk
                offset = chunk.next_offset
            if offset == source.size:
                return
        yield from self._read_chunks(source, offset)

    def _unread_chunks(self, source: Source, offset: int) -> Iterator[UnreadChunk]:
        """Chunks until one whose end cannot be told from the text near it."""
        while offset < source.size:
            is_last = offset + self._chunk_size >= source.size
            end = source.size if is_last else self._border(source, offset)
            if end is None:
                return
            yield UnreadChunk(self, source, offset, end - offset, is_last)
            offset = end

    def _border(self, source: Source, start: int) -> int | None:
        """Where a chunk from `start` may end."""
        stop = start + self._chunk_size
        for window in (min(_WINDOW, self._chunk_size), self._chunk_size):
            near_end = read_stretch(source.path, stop - window, window)
            place = self._cutter.last_certain_place(near_end)
            if place is not None:
                return stop - window + place
        return None

    def read(self, unread: UnreadChunk) -> Chunk:
        """The text of a stretch that was only planned; in any thread."""
        data = np.frombuffer(
            read_stretch(unread.source.path, unread.offset, unread.num_bytes), np.uint8
        )
        self._valid_until(data, True, unread.source, unread.offset)
        specials = self._finder.find(data, 0, len(data))
        if unread.is_last:
            specials = np.concatenate([specials, self._document_ends([len(data)])])
        return Chunk(data, specials, unread.disk_bytes, unread.next_offset, unread.is_last)

    def _read_chunks(self, source: Source, offset: int) -> Iterator[Chunk]:
        """One block after the other, each looked at whole to find where it may be cut."""
        blocks: list[bytes] = []
        wanted = 0
        for block, is_last in _mark_last(source.blocks(offset, self._chunk_size)):
            if block.document_ends:  # records: a block ends where a document ends
                offset = block.offset + len(block.data)
                yield self._chunk_of_records(block, source, offset, is_last)
                continue
            blocks.append(block.data)
            wanted -= len(block.data)
            if wanted > 0 and not is_last:
                continue
            pending = b"".join(blocks)
            data = np.frombuffer(pending, np.uint8)
            valid = self._valid_until(data, is_last, source, offset)
            end, specials = self._cut_text(data, valid, is_last)
            blocks = [pending[end:]]
            # Nothing certain yet: look again when there is twice as much, for linear time.
            wanted = 0 if end else len(pending)
            if end or is_last:
                offset += end
                text = data[:end]
                if valid < end:
                    text = _replaced(text)
                    specials = self._finder.find(text, 0, len(text))
                if is_last:
                    specials = np.concatenate([specials, self._document_ends([len(text)])])
                yield Chunk(text, specials, block.disk_bytes, offset, is_last)

    def _valid_until(self, data: Bytes, is_last: bool, source: Source, offset: int) -> int:
        """Where the text stops being UTF-8; a character cut in two by the block is no fault."""
        stop = len(data) if is_last else whole_characters(data, 0, len(data))
        invalid = first_invalid(data, 0, stop)
        if invalid >= 0 and self._errors == "strict":
            raise InputError(
                f"not UTF-8: byte 0x{int(data[invalid]):02x} at offset {offset + invalid:,}",
                where=str(source.path),
                hint="mend the file, or use `--errors replace` to read U+FFFD instead",
            )
        return stop if invalid < 0 else int(invalid)

    def _cut_text(self, data: Bytes, valid: int, is_last: bool) -> tuple[int, Specials]:
        stop = len(data) if is_last else whole_characters(data, 0, len(data))
        return self._cutter.cut(data, 0, stop, is_end=is_last, is_valid=valid == stop)

    def _chunk_of_records(self, block: Block, source: Source, offset: int, is_last: bool) -> Chunk:
        texts = [
            block.data[start:end]
            for start, end in zip([0, *block.document_ends], block.document_ends, strict=False)
        ]
        data = np.frombuffer(block.data, np.uint8)
        ends = np.array(block.document_ends, np.int64)
        if first_invalid(data, 0, len(data)) >= 0 or _begins_inside_character(data, ends):
            texts = [self._valid_record(text, source) for text in texts]
            data = np.frombuffer(b"".join(texts), np.uint8)
            ends = np.cumsum([len(text) for text in texts], dtype=np.int64)
        return Chunk(data, self._all_specials(data, ends), block.disk_bytes, offset, is_last)

    def _valid_record(self, text: bytes, source: Source) -> bytes:
        try:
            return text.decode("utf-8", errors=self._errors).encode()
        except UnicodeDecodeError as error:
            raise InputError(
                f"not UTF-8: byte 0x{text[error.start]:02x} at offset {error.start:,} of a record",
                where=str(source.path),
                hint="mend the file, or use `--errors replace` to read U+FFFD instead",
            ) from None

    def _all_specials(self, data: Bytes, ends: Specials) -> Specials:
        """Special tokens inside documents, and the documents' ends, in order of place."""
        specials = self._finder.find(data, 0, len(data))
        crossed = np.searchsorted(ends, specials[:, 0], "right") != np.searchsorted(
            ends, specials[:, 1]
        )
        if crossed.any():  # what looks like a special token is the end of one text and the next
            starts = [0, *ends[:-1].tolist()]
            found = (self._finder.find(data, a, int(b)) for a, b in zip(starts, ends, strict=True))
            specials = np.concatenate([each.copy() for each in found])
        specials = np.concatenate([specials, self._document_ends(ends)])
        return np.ascontiguousarray(specials[np.lexsort((specials[:, 1], specials[:, 0]))])

    def _document_ends(self, ends: Iterable[int]) -> Specials:
        places = np.array(ends, np.int64)
        return np.stack([places, places, np.full_like(places, self._finder.document_end)], axis=1)


def _begins_inside_character(data: Bytes, ends: Specials) -> bool:
    """Whether a document begins with the rest of a character."""
    starts = ends[ends < len(data)]
    return bool(np.any(data[starts] & 0xC0 == 0x80))


def _replaced(data: Bytes) -> Bytes:
    return np.frombuffer(data.tobytes().decode("utf-8", errors="replace").encode(), np.uint8)


def _mark_last(items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
    iterator = iter(items)
    for item in iterator:
        for following in iterator:
            yield item, False
            item = following
        yield item, True
