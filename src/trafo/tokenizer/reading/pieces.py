"""Inputs -> pieces of many chunks each, for workers that read the files themselves.

Planning looks only at a few bytes around each cut, so one process can plan for many. A compressed
file cannot be entered in the middle: it is one piece, unless it is so large that its result would
not fit; then the planner reads it, and each piece carries its text.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from trafo.tokenizer.reading.chunks import START, Chunker, PlannedChunk, Position

LARGEST_WHOLE = 256 << 20  # bytes on disk of a compressed file that one worker reads


class Piece(NamedTuple):
    """Adjacent chunks of the inputs, from one place to another, for one worker."""

    start: Position
    end: Position
    disk_bytes: int
    chunk: PlannedChunk | None = None  # if it has been read already


def plan_pieces(chunker: Chunker, size: int, start: Position = START) -> Iterator[Piece]:
    """All pieces in order, of about `size` bytes on disk; small files are joined."""
    begin, gathered = start, 0
    joined: Position | None = None
    for stop, disk_bytes, chunk in _stops(chunker, size, start):
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


def _stops(
    chunker: Chunker, size: int, start: Position
) -> Iterator[tuple[Position, int, PlannedChunk | None]]:
    """Where a piece may end, the bytes on disk since the last such place, and its chunk if read."""
    for index in range(start.file, len(chunker.inputs.files)):
        at = start if index == start.file else Position(index)
        file = chunker.inputs.files[index]
        if chunker.can_enter(file):
            while at.offset + size < file.size:
                border = chunker.border(file, at.offset, size)
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
