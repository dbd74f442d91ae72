"""Files -> word counts: a reader, one counter a thread, and a store for long runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trafo.tokenizer.chunks import Chunk, Chunker
from trafo.tokenizer.count import WordCounter
from trafo.tokenizer.count_store import CountStore, Position
from trafo.tokenizer.scan import Scanner
from trafo.tokenizer.sources import Source
from trafo.tokenizer.workers import feed

SECONDS_BETWEEN_SAVES = 60.0

Advance = Callable[[float], None]


@dataclass(frozen=True)
class _Read:
    """A chunk, and how far reading has come behind it."""

    chunk: Chunk
    position: Position
    disk_bytes: int  # read since the chunk before


class FileCounter:
    """Counts the words of sources, from where the store left off if there is one."""

    def __init__(
        self,
        sources: Sequence[Source],
        chunker: Chunker,
        pattern: str,
        num_workers: int,
        store: CountStore | None = None,
        most_memory: int | None = None,
    ) -> None:
        self.position = store.position if store else Position()
        self.counters = [WordCounter(Scanner(pattern)) for _ in range(num_workers)]
        self._sources = sources
        self._chunker = chunker
        self._store = store
        self._most_memory = most_memory

    def run(self, advance: Advance = lambda _: None) -> None:
        """Count to the end; `advance` is told the bytes read from disk."""
        if self.position.is_complete:
            advance(sum(source.size for source in self._sources))
            return
        consumers = [_counting(counter) for counter in self.counters]
        reads = self._reads()
        while (first := next(reads, None)) is not None:
            feed(self._until_save(itertools.chain([first], reads), advance), consumers)
            if self._store:
                self._store.add_run(self.counters, self.position)
        self.position = Position(len(self._sources), 0, self.position.num_bytes, is_complete=True)
        if self._store:
            self._store.add_run(self.counters, self.position)

    def _reads(self) -> Iterator[_Read]:
        num_bytes = self.position.num_bytes
        start = self.position
        for index in range(start.source, len(self._sources)):
            disk_bytes = 0
            offset = start.offset if index == start.source else 0
            for chunk in self._chunker.chunks(self._sources[index], offset):
                num_bytes += len(chunk.data)
                position = Position(index, chunk.next_offset, num_bytes)
                yield _Read(chunk, position, chunk.disk_bytes - disk_bytes)
                disk_bytes = chunk.disk_bytes

    def _until_save(self, reads: Iterator[_Read], advance: Advance) -> Iterator[Chunk]:
        """Chunks until it is time to save, or until the counters hold all they may."""
        end = time.monotonic() + SECONDS_BETWEEN_SAVES
        for read in reads:
            yield read.chunk
            self.position = read.position
            advance(read.disk_bytes)
            if self._store and (time.monotonic() >= end or self._is_full()):
                return

    def _is_full(self) -> bool:
        if self._most_memory is None:
            return False
        return sum(counter.memory for counter in self.counters) >= self._most_memory


def _counting(counter: WordCounter) -> Callable[[Chunk], None]:
    return lambda chunk: counter.count(chunk.data, 0, len(chunk.data), chunk.cuts)
