"""Files -> word counts: a reader, one counter a thread, and a store for long runs."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence

from trafo.tokenizer.counting.counter import WordCounter
from trafo.tokenizer.counting.store import CountStore
from trafo.tokenizer.reading.chunks import Chunk, Chunker, UnreadChunk
from trafo.tokenizer.reading.positions import Position, Read, disk_bytes_before, read_all
from trafo.tokenizer.reading.sources import Source
from trafo.tokenizer.reading.workers import feed
from trafo.tokenizer.words.scanner import Scanner

SECONDS_BETWEEN_SAVES = 60.0

Advance = Callable[[float], None]


class FileCounter:
    """Counts the words of sources, from where the store left off if there is one.

    With a store and a limit, counters that hold more than `most_memory` bytes go to disk.
    """

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
        advance(disk_bytes_before(self._sources, self.position))
        if self.position.is_complete:
            return
        consumers = [_counting(counter) for counter in self.counters]
        reads = read_all(self._sources, self._chunker, self.position)
        for first in reads:
            feed(self._until_save(itertools.chain([first], reads), advance), consumers)
            if self._store and self._is_due():
                self._store.add_run(self.counters, self.position)
        self.position = self.position.at_end()
        if self._store:
            self._store.add_run(self.counters, self.position)

    def _until_save(self, reads: Iterator[Read], advance: Advance) -> Iterator[Chunk | UnreadChunk]:
        """Chunks until it is time to save, or until the counters hold all they may."""
        self._save_at = time.monotonic() + SECONDS_BETWEEN_SAVES
        for read in reads:
            yield read.chunk
            self.position = read.position
            advance(read.disk_bytes)
            if self._store and self._is_due():
                return

    def _is_due(self) -> bool:
        if time.monotonic() >= self._save_at:
            return True
        held = sum(counter.memory for counter in self.counters)
        return self._most_memory is not None and held >= self._most_memory


def _counting(counter: WordCounter) -> Callable[[Chunk | UnreadChunk], None]:
    def count(unread: Chunk | UnreadChunk) -> None:
        chunk = unread.read()
        counter.count(chunk.data, 0, len(chunk.data), chunk.specials)

    return count
