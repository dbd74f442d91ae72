"""All chunks of all sources in order, each with how far reading has come behind it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trafo.tokenizer.reading.chunks import Chunk, Chunker, UnreadChunk
from trafo.tokenizer.reading.sources import Source


@dataclass(frozen=True)
class Position:
    """A place between two chunks: the source, where in its text, and the bytes of text so far."""

    source: int = 0
    offset: int = 0
    num_bytes: int = 0
    disk_bytes: int = 0  # of this source
    is_complete: bool = False

    def at_end(self) -> Position:
        """The same, but nothing is left to read."""
        return replace(self, is_complete=True)


@dataclass(frozen=True)
class Read:
    """A chunk, the file it is from, the place behind it, and what it took from the disk."""

    chunk: Chunk | UnreadChunk
    path: Path
    position: Position
    disk_bytes: int


def read_all(sources: Sequence[Source], chunker: Chunker, start: Position) -> Iterator[Read]:
    """The chunks from `start` to the end."""
    if start.is_complete:
        return
    num_bytes = start.num_bytes
    for index in range(start.source, len(sources)):
        first = index == start.source
        disk_bytes = start.disk_bytes if first else 0
        for chunk in chunker.plan(sources[index], start.offset if first else 0):
            num_bytes += chunk.num_bytes
            if chunk.is_last:  # by its offset, a last chunk of empty records could be read twice
                position = Position(index + 1, 0, num_bytes)
            else:
                position = Position(index, chunk.next_offset, num_bytes, chunk.disk_bytes)
            yield Read(chunk, sources[index].path, position, chunk.disk_bytes - disk_bytes)
            disk_bytes = chunk.disk_bytes


def disk_bytes_before(sources: Sequence[Source], position: Position) -> int:
    """How much of the files lies before a position; for progress."""
    if position.is_complete:
        return sum(source.size for source in sources)
    return sum(source.size for source in sources[: position.source]) + position.disk_bytes
