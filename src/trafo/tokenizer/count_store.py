"""Word counts on disk: what an interrupted count resumes from, and where counts go when
memory is short.

A folder holds runs, each the content of the counters at some moment:

    manifest.json     what is counted, how far, and the sizes of the runs that are valid
    run-0000.counts   partition after partition: the words end to end, int64 ends, int64 counts
    lock              held while a process counts

Runs are partitioned by the hash of the words, so that one partition of all runs can be added up at
a time. A run is on disk before the manifest names it; the manifest is replaced as a whole.
"""

from __future__ import annotations

import itertools
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trafo.errors import FormatError
from trafo.runtime.atomic import lock_file, remove_leftovers, storage_errors, sync
from trafo.runtime.manifest import read_manifest, write_manifest
from trafo.runtime.threads import Pool, map_in_order
from trafo.tokenizer.chunks import START, Chunker, PlannedChunk, Position
from trafo.tokenizer.counting import WordCounter, WordCounts, WordTotals, merge_counts

NUM_PARTITIONS = 32

_VERSION = 2
_MANIFEST = "manifest.json"
_RUN_NAME = re.compile(r"run-(\d+)\.counts")
_NUMBER = np.dtype("<i8")


@dataclass(frozen=True)
class _Run:
    number: int
    sizes: list[WordTotals]  # of each partition


class CountStore:
    """The runs in one folder, for one text and one way of counting it.

    `with` releases the lock on the folder at the end.
    """

    def __init__(self, folder: Path, fingerprint: Mapping[str, Any]) -> None:
        self.folder = folder
        self._fingerprint = _with_version(fingerprint)
        self.position = START
        self.num_bytes = 0  # of text, before the position
        self._runs: list[_Run] = []
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("wb")
            try:
                lock_file(self._lock, folder)
                remove_leftovers(folder / _MANIFEST)
                self._read_manifest()
                self._remove_stale_runs()
            except BaseException:
                self._lock.close()
                raise

    def __enter__(self) -> CountStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _read_manifest(self) -> None:
        """Resume after the existing runs, unless they count something else."""
        manifest = read_manifest(self.folder / _MANIFEST, self._fingerprint)
        with suppress(ValueError, KeyError, TypeError):
            if manifest is not None:
                position, num_bytes = Position(*manifest["position"]), int(manifest["num_bytes"])
                runs = [
                    _Run(int(run["number"]), [WordTotals(*sizes) for sizes in run["sizes"]])
                    for run in manifest["runs"]
                ]
                self.position, self.num_bytes, self._runs = position, num_bytes, runs

    def _write_manifest(self) -> None:
        write_manifest(
            self.folder / _MANIFEST,
            self._fingerprint,
            position=self.position,
            num_bytes=self.num_bytes,
            runs=[asdict(run) for run in self._runs],
        )

    def add_run(self, counters: Sequence[WordCounter], position: Position, num_bytes: int) -> None:
        """Store what the counters hold and how far they have come, and empty them."""
        merged = (
            merge_counts(counter.export(i, NUM_PARTITIONS) for counter in counters)
            for i in range(NUM_PARTITIONS)
        )
        self.add_partitions(merged, position, num_bytes)
        for counter in counters:
            counter.clear()

    def add_partitions(
        self, partitions: Iterable[WordCounts], position: Position, num_bytes: int
    ) -> None:
        """Store counts, partition after partition, and how far they have come."""
        self._runs.append(self._write_run(partitions))
        self.position, self.num_bytes = position, num_bytes
        self._write_manifest()

    def join_runs(self) -> None:
        """Make one run of all, so that later passes need not add them up again."""
        if len(self._runs) > 1:
            self._runs = [self._write_run(self.partitions())]
            self._write_manifest()
            self._remove_stale_runs()

    def totals(self) -> WordTotals:
        """The sizes of all counts, which must be one run, without reading them."""
        [run] = self._runs
        return WordTotals.sum(run.sizes)

    def partitions(self) -> Iterator[WordCounts]:
        """Read all counts, one partition after the other. Every word is in exactly one."""
        for i in range(NUM_PARTITIONS):
            yield merge_counts(self._read(run, i) for run in self._runs)

    def _write_run(self, partitions: Iterable[WordCounts]) -> _Run:
        """Write a run and force it to disk. It is valid once the manifest names it."""
        number = max((run.number for run in self._runs), default=-1) + 1
        sizes = []
        path = self._path(number)
        with storage_errors(path), path.open("wb") as file:
            for words in partitions:
                sizes.append(words.totals())
                file.write(words.text.data)
                file.write(words.ends.astype(_NUMBER, copy=False).data)
                file.write(words.counts.astype(_NUMBER, copy=False).data)
            file.flush()
            os.fsync(file.fileno())
            sync(self.folder)
        return _Run(number, sizes)

    def _read(self, run: _Run, partition: int) -> WordCounts:
        path = self._path(run.number)
        size = run.sizes[partition]
        with storage_errors(path, "reading"), path.open("rb") as file:
            file.seek(sum(map(_size_on_disk, run.sizes[:partition])))
            text = np.fromfile(file, np.uint8, size.num_bytes)
            ends = np.fromfile(file, _NUMBER, size.num_distinct)
            counts = np.fromfile(file, _NUMBER, size.num_distinct)
        words = WordCounts(text, ends, counts)
        if words.totals() != size:
            raise FormatError(
                "is damaged", where=str(path), hint="delete its folder and count again"
            )
        text.flags.writeable = False
        return words

    def _path(self, run: int) -> Path:
        return self.folder / f"run-{run:04}.counts"

    def _remove_stale_runs(self) -> None:
        """Delete what a killed run left, and runs that count something else."""
        valid = {run.number for run in self._runs}
        for path in self.folder.glob("run-*.counts"):
            name = _RUN_NAME.fullmatch(path.name)
            if name and int(name[1]) not in valid:
                path.unlink()


def has_counts(folder: Path, fingerprint: Mapping[str, Any]) -> bool:
    """Whether a folder has the counts of such a text, finished or not."""
    return read_manifest(folder / _MANIFEST, _with_version(fingerprint)) is not None


def _with_version(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    return {"version": _VERSION, **fingerprint}


def _size_on_disk(size: WordTotals) -> int:
    return size.num_bytes + 2 * _NUMBER.itemsize * size.num_distinct


SECONDS_BETWEEN_SAVES = 60.0


class CorpusCounter(Protocol):
    """Counts the words of all chunks: `LocalCounter`, or its counterpart for a cluster."""

    num_bytes: int
    """of text, counted so far"""

    def run(self, advance: Callable[[float], None]) -> None:
        """Count to the end and tell `advance` the bytes read from disk."""


class LocalCounter:
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
        """Count to the end and tell `advance` the bytes read from disk."""
        advance(self._chunker.disk_bytes_before(self.position))
        if self.position == self._chunker.end:
            return
        chunks = self._chunker.plan(self.position)
        for first in chunks:
            until_save = self._chunks_until_save(itertools.chain([first], chunks))
            for chunk, num_bytes in map_in_order(self._count, until_save, self._num_workers):
                self.position = chunk.next
                self.num_bytes += num_bytes
                advance(chunk.disk_bytes)
            if self._should_save():
                self._save()
        self.position = self._chunker.end  # which it is not yet if the last file is empty
        self._save()

    def _count(self, planned: PlannedChunk) -> tuple[PlannedChunk, int]:
        # Taken before reading, so that mostly a thread keeps its counter, and a core its cache.
        with self._pool.borrow() as counter:
            chunk = self._chunker.read(planned)
            counter.count(chunk.data, chunk.specials)
        return planned, len(chunk.data)

    def _chunks_until_save(self, chunks: Iterator[PlannedChunk]) -> Iterator[PlannedChunk]:
        """Chunks until it is time to save, or until the counters hold all they may."""
        self._save_at = time.monotonic() + SECONDS_BETWEEN_SAVES
        for chunk in chunks:
            yield chunk
            if self._should_save():
                return

    def _should_save(self) -> bool:
        if self._store is None:
            return False
        held = sum(counter.memory for counter in self.counters)
        is_full = self._most_memory is not None and held >= self._most_memory
        return is_full or time.monotonic() >= self._save_at

    def _save(self) -> None:
        if self._store is not None:
            self._store.add_run(self.counters, self.position, self.num_bytes)
