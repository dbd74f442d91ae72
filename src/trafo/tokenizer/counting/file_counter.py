"""Files -> word counts, by several threads, saved now and then."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from typing import Protocol

from trafo.runtime.threads import Pool, map_in_order
from trafo.tokenizer.counting.counter import WordCounter
from trafo.tokenizer.counting.store import CountStore
from trafo.tokenizer.reading.chunks import START, Chunker, PlannedChunk

SECONDS_BETWEEN_SAVES = 60.0


class Counting(Protocol):
    """Counts the words of all chunks: `FileCounter`, or its counterpart for a cluster."""

    num_bytes: int
    """of text, counted so far"""

    def run(self, advance: Callable[[float], None]) -> None:
        """Count to the end; `advance` is told the bytes read from disk."""


class FileCounter:
    """Counts the words of all chunks, from where the store left off if there is one.

    With a store and a limit, counters that hold more than `most_memory` bytes go to disk.
    """

    def __init__(
        self,
        chunker: Chunker,
        pattern: str,
        num_workers: int,
        store: CountStore | None = None,
        most_memory: int | None = None,
    ) -> None:
        self.position = store.position if store else START
        self.num_bytes = store.num_bytes if store else 0  # of text, counted so far
        self._pool = Pool(lambda: WordCounter(pattern))
        self._chunker = chunker
        self._num_workers = num_workers
        self._store = store
        self._most_memory = most_memory

    @property
    def counters(self) -> list[WordCounter]:
        """What has been counted and is not in the store."""
        return self._pool.members

    def run(self, advance: Callable[[float], None] = lambda _: None) -> None:
        """Count to the end; `advance` is told the bytes read from disk."""
        advance(self._chunker.disk_bytes_before(self.position))
        if self.position == self._chunker.end:
            return
        chunks = self._chunker.plan(self.position)
        for first in chunks:
            until_save = self._until_save(itertools.chain([first], chunks))
            for chunk, num_bytes in map_in_order(self._count, until_save, self._num_workers):
                self.position = chunk.next
                self.num_bytes += num_bytes
                advance(chunk.disk_bytes)
            if self._is_due():
                self._save()
        self.position = self._chunker.end  # which it is not yet if the last file is empty
        self._save()

    def _count(self, planned: PlannedChunk) -> tuple[PlannedChunk, int]:
        # Taken before reading, so that mostly a thread keeps its counter, and a core its cache.
        with self._pool.borrow() as counter:
            chunk = self._chunker.read(planned)
            counter.count(chunk.data, chunk.specials)
        return planned, len(chunk.data)

    def _until_save(self, chunks: Iterator[PlannedChunk]) -> Iterator[PlannedChunk]:
        """Chunks until it is time to save, or until the counters hold all they may."""
        self._save_at = time.monotonic() + SECONDS_BETWEEN_SAVES
        for chunk in chunks:
            yield chunk
            if self._is_due():
                return

    def _is_due(self) -> bool:
        if self._store is None:
            return False
        held = sum(counter.memory for counter in self.counters)
        is_full = self._most_memory is not None and held >= self._most_memory
        return is_full or time.monotonic() >= self._save_at

    def _save(self) -> None:
        if self._store is not None:
            self._store.add_run(self.counters, self.position, self.num_bytes)
