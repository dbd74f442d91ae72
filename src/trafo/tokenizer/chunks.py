"""Input files -> chunks of valid text that can be scanned each on its own, in any order.

One thread plans: it finds where the text may be cut in two without changing its words. Any thread
then reads a planned chunk. Of plain files the planner looks only at a few bytes around each cut;
compressed files and records it must read itself, and the chunk carries their bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple, TypeVar

import numpy as np

from trafo.errors import InputError
from trafo.runtime.machine import available_memory
from trafo.runtime.sizes import format_size
from trafo.tokenizer.files import AnyPath, Errors, read_range
from trafo.tokenizer.inputs import InputFile, Inputs
from trafo.tokenizer.kernels.arrays import Bytes, Int64s, Specials
from trafo.tokenizer.kernels.utf8 import first_invalid
from trafo.tokenizer.words import Cutter, SpecialFinder, whole_characters

CHUNK_SIZE = 4 << 20  # bytes

_MEMORY_OF_WORD = 64  # bytes that it takes to read and encode a byte of a very long word
_WINDOW = 4096  # bytes before the end of a chunk in which a safe place nearly always is

Item = TypeVar("Item")


class Position(NamedTuple):
    """A place between two chunks, saved so that an interrupted job can resume there."""

    file: int = 0  # index into the inputs
    offset: int = 0  # bytes of its text, or its records, that lie before
    disk_bytes: int = 0  # of the file that have been read; for progress


START = Position()


@dataclass(frozen=True, slots=True)
class PlannedChunk:
    """A chunk to be read: text of one file, cut where no word is split.

    `start` and `end` are offsets in the file's text, or the numbers of its records.
    """

    file: InputFile
    start: int
    end: int
    is_last: bool  # of its file
    next: Position  # where the next chunk begins
    disk_bytes: int  # what it adds to the bytes read from disk; for progress
    raw: bytes | None = None  # its bytes, if its end could only be found by reading them
    document_ends: Sequence[int] = ()  # where the records end in `raw`


@dataclass(frozen=True, slots=True)
class Chunk:
    """A chunk that has been read: valid UTF-8, normalized if the tokenizer does that.

    `specials` are its special tokens and, with the index that the finder has for them, the ends of
    its documents: of every record, and of the file.
    """

    data: Bytes
    specials: Specials
    plan: PlannedChunk
    num_bytes: int  # before normalization


class Chunker:
    """Plans and reads chunks of about `chunk_size` bytes."""

    def __init__(
        self,
        inputs: Inputs,
        pattern: str,
        finder: SpecialFinder,
        chunk_size: int = CHUNK_SIZE,
        max_memory: int | None = None,
    ) -> None:
        self.inputs = inputs
        self.end = Position(len(inputs.files))  # where nothing is left to read
        self._cutter = Cutter(pattern, finder)
        self.finder = finder
        self._chunk_size = chunk_size
        self._max_memory = max_memory  # None: what the machine has

    def disk_bytes_before(self, position: Position) -> int:
        """How much of the files lies before a position."""
        files = self.inputs.files[: position.file]
        return sum(file.size for file in files) + position.disk_bytes

    def plan(self, start: Position = START, end: Position | None = None) -> Iterator[PlannedChunk]:
        """All chunks in order, from `start`, which is the `next` of an earlier chunk.

        With an `end`, up to it: the end of a file, or a border in one that is splittable.
        """
        end = end or self.end
        for index in range(start.file, len(self.inputs.files)):
            if Position(index) >= end:
                return
            at = start if index == start.file else Position(index)
            yield from self._plan_file(at, end.offset if index == end.file else None)

    def is_splittable(self, file: InputFile) -> bool:
        """Whether the chunks of a file can be planned from the bytes around their ends."""
        return bool(file.size) and file.is_seekable and self.inputs.errors == "strict"

    def _plan_file(self, at: Position, stop: int | None) -> Iterator[PlannedChunk]:
        file = self.inputs.files[at.file]
        if file.has_records:
            yield from self._plan_records(at)
            return
        if self.is_splittable(file):
            stop = file.size if stop is None else stop
            for chunk in self._plan_unread(at, stop):
                yield chunk
                if chunk.end == stop:
                    return
                at = chunk.next
        yield from self._plan_by_reading(at, stop)

    def _plan_chunk(
        self,
        at: Position,
        end: int,
        disk_end: int,
        *,
        is_last: bool,
        raw: bytes | None = None,
        document_ends: Sequence[int] = (),
    ) -> PlannedChunk:
        file = self.inputs.files[at.file]
        following = Position(at.file + 1) if is_last else Position(at.file, end, disk_end)
        disk_bytes = disk_end - at.disk_bytes
        return PlannedChunk(
            file, at.offset, end, is_last, following, disk_bytes, raw, document_ends
        )

    def _plan_unread(self, at: Position, stop: int) -> Iterator[PlannedChunk]:
        """Chunks until one whose end cannot be found from the text near it."""
        file = self.inputs.files[at.file]
        end: int | None = None
        while end != stop:
            reaches = at.offset + self._chunk_size >= stop
            end = stop if reaches else self.find_border(file, at.offset, self._chunk_size)
            if end is None:
                return
            chunk = self._plan_chunk(at, end, end, is_last=end == file.size)
            yield chunk
            at = chunk.next

    def find_border(self, file: InputFile, start: int, size: int) -> int | None:
        """Find where `size` bytes from `start`, or fewer, may end. None: it is not known."""
        stop = start + size
        for window in (min(_WINDOW, size), min(self._chunk_size, size)):
            near_end = read_range(file.path, stop - window, window)
            place = self._cutter.last_safe_boundary(near_end)
            if place is not None:
                return stop - window + place
        return None

    def _plan_by_reading(self, at: Position, stop: int | None) -> Iterator[PlannedChunk]:
        """Chunks whose ends are found by looking at all of their text."""
        file = self.inputs.files[at.file]
        pending: list[bytes] = []
        missing = 0
        reads = self.inputs.read(file, self._chunk_size, at.offset)
        if stop is not None:
            reads = _read_until(reads, at.offset, stop)
        for (data, disk_end), is_last in _mark_last(reads):
            pending.append(data)
            missing -= len(data)
            if missing > 0 and not is_last:
                continue
            text = b"".join(pending)
            end = len(text) if is_last else self._find_safe_end(text, file, at.offset)
            # Nothing certain yet: look again when there is twice as much, for linear time.
            missing = 0 if end else len(text)
            self._check_memory(missing, file)
            pending = [text[end:]]
            if end:
                offset = at.offset + end
                ends_file = is_last and stop in (None, file.size)
                chunk = self._plan_chunk(at, offset, disk_end, is_last=ends_file, raw=text[:end])
                yield chunk
                at = chunk.next

    def _check_memory(self, num_bytes: int, file: InputFile) -> None:
        """Raise if so much text without a place to cut, perhaps one word, does not fit."""
        available = self._max_memory or available_memory()
        needed = _MEMORY_OF_WORD * num_bytes
        if needed > max(available, _MEMORY_OF_WORD * self._chunk_size):
            raise InputError(
                f"has {format_size(num_bytes)} without a place to cut, which needs about "
                f"{format_size(needed)} of memory, and {format_size(available)} is available",
                where=str(file.path),
                hint="use another split pattern, or break the text into lines",
            )

    def _find_safe_end(self, text: bytes, file: InputFile, offset: int) -> int:
        data = np.frombuffer(text, np.uint8)
        stop = whole_characters(data, 0, len(data))
        end, _ = self._cutter.cut(data, 0, stop)
        if not end and self.inputs.errors == "strict":
            check_utf8(data[:stop], file.path, offset)  # or no end might ever be found
        return end

    def _plan_records(self, at: Position) -> Iterator[PlannedChunk]:
        """Many small records to a chunk."""
        file = self.inputs.files[at.file]
        records: list[bytes] = []
        size = number = 0
        for (record, disk_end), is_last in _mark_last(self.inputs.read(file, self._chunk_size)):
            number += 1
            if number <= at.offset:
                continue
            records.append(record)
            size += len(record)
            if size >= self._chunk_size or is_last:
                chunk = self._plan_chunk(
                    at,
                    number,
                    disk_end,
                    is_last=is_last,
                    raw=b"".join(records),
                    document_ends=list(accumulate(map(len, records))),
                )
                yield chunk
                at = chunk.next
                records, size = [], 0

    def read(self, plan: PlannedChunk) -> Chunk:
        """Read a planned chunk. Any number of threads may do so at a time."""
        raw = plan.raw
        if raw is None:
            raw = read_range(plan.file.path, plan.start, plan.end - plan.start)
        data: Bytes = np.frombuffer(raw, np.uint8)
        ends = np.array(plan.document_ends, np.int64)
        errors = self.inputs.errors
        if plan.file.has_records:
            data, ends = decode_records(data, ends, plan.file.path, errors)
        else:
            data = decode_text(data, plan.file.path, plan.start, errors)
            ends = np.array([len(data)] if plan.is_last else [], np.int64)
        num_bytes = len(data)
        if self.finder.nfc:
            data, specials = self._normalize(data, ends)
        else:
            specials = self._find_specials(data, ends)
        return Chunk(data, specials, plan, num_bytes)

    def _normalize(self, data: Bytes, ends: Int64s) -> tuple[Bytes, Specials]:
        """Normalize documents one by one, and find specials as `_find_specials` does."""
        parts: list[bytes] = []
        found: list[Specials] = []
        size = 0
        for start, stop in pairwise([0, *ends.tolist(), *([] if len(ends) else [len(data)])]):
            part, specials = self.finder.normalize(
                data, start, stop, self.finder.find(data, start, stop)
            )
            parts.append(part.tobytes())
            found.append(specials + np.array([size, size, 0]))
            size += len(part)
            if len(ends):
                found.append(np.array([[size, size, self.finder.document_end]], np.int64))
        # Not `concatenate`: to numba, an array that may be written to is another type.
        return np.frombuffer(b"".join(parts), np.uint8), np.concatenate(found)

    def _find_specials(self, data: Bytes, ends: Int64s) -> Specials:
        """Special tokens inside documents, and the documents' ends, in order of place."""
        found = self.finder.find(data, 0, len(data))
        if not len(ends):
            return found
        crosses = np.searchsorted(ends, found[:, 0], "right") != np.searchsorted(ends, found[:, 1])
        if crosses.any():  # what looks like a special token is in two documents
            spans = pairwise([0, *ends.tolist()])
            found = np.concatenate([self.finder.find(data, a, b) for a, b in spans])
        of_documents = np.stack([ends, ends, np.full_like(ends, self.finder.document_end)], axis=1)
        found = np.concatenate([found, of_documents])
        return np.ascontiguousarray(found[np.lexsort((found[:, 1], found[:, 0]))])


def _read_until(
    reads: Iterator[tuple[bytes, int]], offset: int, stop: int
) -> Iterator[tuple[bytes, int]]:
    """Reads of a file that is not compressed, from an offset up to another."""
    for data, disk_end in reads:
        yield data[: stop - offset], min(disk_end, stop)
        offset += len(data)
        if offset >= stop:
            return


def _mark_last(items: Iterable[Item]) -> Iterator[tuple[Item, bool]]:
    iterator = iter(items)
    for item in iterator:
        for following in iterator:
            yield item, False
            item = following
        yield item, True


def decode_text(data: Bytes, path: AnyPath, offset: int, errors: Errors) -> Bytes:
    """Return the text at an offset of a file, with U+FFFD where it is not UTF-8, or raise."""
    if errors == "strict":
        check_utf8(data, path, offset)
    elif first_invalid(data) >= 0:
        text = data.tobytes().decode("utf-8", errors="replace")
        return np.frombuffer(text.encode(), np.uint8)
    return data


def decode_records(
    data: Bytes, ends: Int64s, path: AnyPath, errors: Errors
) -> tuple[Bytes, Int64s]:
    """Do the same for records, each valid by itself, and return where they end then."""
    if first_invalid(data) < 0 and not _begins_inside_character(data, ends):
        return data, ends
    raw = data.tobytes()
    spans = pairwise([0, *ends.tolist()])
    records = [_decode_record(raw[start:end], path, errors) for start, end in spans]
    lengths = np.array([len(record) for record in records], np.int64)
    return np.frombuffer(b"".join(records), np.uint8), np.cumsum(lengths)


def check_utf8(data: Bytes, path: AnyPath, offset: int) -> None:
    """Raise if a text, which begins at an offset of its file, is not UTF-8."""
    invalid = first_invalid(data)
    if invalid >= 0:
        raise _not_utf8(int(data[invalid]), f"{offset + invalid:,}", path)


def _decode_record(record: bytes, path: AnyPath, errors: Errors) -> bytes:
    try:
        return record.decode("utf-8", errors=errors).encode()
    except UnicodeDecodeError as error:
        raise _not_utf8(record[error.start], f"{error.start:,} of a record", path) from None


def _not_utf8(byte: int, offset: str, path: AnyPath) -> InputError:
    return InputError(
        f"not UTF-8: byte 0x{byte:02x} at offset {offset}",
        where=str(path),
        hint="fix the file, or use `--errors replace` to read U+FFFD instead",
    )


def _begins_inside_character(data: Bytes, ends: Int64s) -> bool:
    """Whether a record begins with the rest of a character."""
    starts = ends[ends < len(data)]
    return bool(np.any(data[starts] & 0xC0 == 0x80))


LARGEST_WHOLE = 256 << 20  # bytes on disk of a compressed file that one worker reads


class Piece(NamedTuple):
    """Adjacent chunks of the inputs, from one place to another, for one worker."""

    start: Position
    end: Position
    disk_bytes: int
    chunk: PlannedChunk | None = None  # if it has been read already


def plan_pieces(chunker: Chunker, size: int, start: Position = START) -> Iterator[Piece]:
    """Plan all pieces in order, of about `size` bytes on disk, with small files joined."""
    begin, gathered = start, 0
    joined: Position | None = None
    for stop, disk_bytes, chunk in _find_stops(chunker, size, start):
        gathered += disk_bytes
        is_small_file = chunk is None and not stop.offset
        if is_small_file and gathered < size and stop != chunker.end:
            joined = stop
            continue
        if chunk is not None and joined is not None:  # small files before it
            yield Piece(begin, joined, gathered - disk_bytes)
            begin, gathered = joined, disk_bytes
        yield Piece(begin, stop, gathered, chunk)
        begin, gathered, joined = stop, 0, None


def chunks_of(piece: Piece, chunker: Chunker) -> Iterator[PlannedChunk]:
    """The chunks of a piece, as its worker reads them."""
    return iter([piece.chunk]) if piece.chunk else chunker.plan(piece.start, piece.end)


def _find_stops(
    chunker: Chunker, size: int, start: Position
) -> Iterator[tuple[Position, int, PlannedChunk | None]]:
    """Where a piece may end, the bytes on disk since the last such place, and its chunk if read."""
    for index in range(start.file, len(chunker.inputs.files)):
        at = start if index == start.file else Position(index)
        file = chunker.inputs.files[index]
        if chunker.is_splittable(file):
            while at.offset + size < file.size:
                border = chunker.find_border(file, at.offset, size)
                if border is None:
                    break
                yield Position(index, border, border), border - at.offset, None
                at = Position(index, border, border)
        elif file.size - at.disk_bytes > LARGEST_WHOLE:
            for chunk in chunker.plan(at, Position(index + 1)):
                yield chunk.next, chunk.disk_bytes, chunk
                at = chunk.next
            if at.file > index:
                continue
        yield Position(index + 1), file.size - at.disk_bytes, None
