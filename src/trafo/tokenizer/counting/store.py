"""Word counts on disk: what a killed count goes on from, and where counts go when memory is short.

A folder holds runs, each the content of the counters at some moment, cut into parts by the words'
hash, so that one part of all runs can be added up at a time:

    manifest.json        what is counted, how far, and which runs are valid
    run-0000.part-00.npy ...
    lock                 held while somebody counts

A run counts only once the manifest says so; the manifest is replaced as a whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import header_data_from_array_1_0, write_array_header_1_0

from trafo.errors import FormatError
from trafo.runtime.atomic import atomic_write, remove_leftovers, storage_errors
from trafo.runtime.lock import lock
from trafo.tokenizer.counting.counter import WordCounter, WordCounts, merge_counts
from trafo.tokenizer.reading.positions import Position

NUM_PARTS = 32

_MANIFEST = "manifest.json"
_RUN_NAME = re.compile(r"run-(\d+)\.part-\d+\.npy")


class CountStore:
    """The runs in one folder, for one input and one way of counting it (the key).

    `with` gives the folder back to others.
    """

    def __init__(self, folder: Path, key: Mapping[str, Any]) -> None:
        self._folder = folder
        self._key = json.loads(json.dumps(key))
        self.position = Position()
        self._runs: list[int] = []
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
            self._lock = (folder / "lock").open("wb")
            try:
                lock(self._lock, folder)
                remove_leftovers(folder / _MANIFEST)
                self._read_manifest()
                self._remove_other_runs()
            except BaseException:
                self._lock.close()
                raise

    def __enter__(self) -> CountStore:
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def _read_manifest(self) -> None:
        """Go on where the runs that are there end, unless they count something else."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            manifest = json.loads((self._folder / _MANIFEST).read_text())
            if manifest["key"] == self._key:
                position, runs = Position(**manifest["position"]), list(map(int, manifest["runs"]))
                self.position, self._runs = position, runs

    def _write_manifest(self) -> None:
        manifest = {"key": self._key, "position": asdict(self.position), "runs": self._runs}
        with atomic_write(self._folder / _MANIFEST, "w") as file:
            json.dump(manifest, file)

    def add_run(self, counters: Sequence[WordCounter], position: Position) -> None:
        """Store what the counters hold, which then are empty, and how far they have come."""
        run = max(self._runs, default=-1) + 1
        for part in range(NUM_PARTS):
            words = merge_counts(counter.export(part, NUM_PARTS) for counter in counters)
            _write_words(self._path(run, part), words)
        self._runs.append(run)
        self.position = position
        self._write_manifest()
        for counter in counters:
            counter.clear()

    def join_runs(self) -> None:
        """Make one run of all, so that later passes need not add them up again."""
        if len(self._runs) < 2:
            return
        joined = self._runs[-1] + 1
        for part, words in enumerate(self.parts()):
            _write_words(self._path(joined, part), words)
        self._runs = [joined]
        self._write_manifest()
        self._remove_other_runs()

    def parts(self) -> Iterator[WordCounts]:
        """All counts, one part after the other; every word is in exactly one part."""
        for part in range(NUM_PARTS):
            runs = [self._path(run, part) for run in self._runs]
            if len(runs) == 1:
                yield _read_words(runs[0])
            else:
                yield merge_counts(map(_read_words, runs))

    def _path(self, run: int, part: int) -> Path:
        return self._folder / f"run-{run:04}.part-{part:02}.npy"

    def _remove_other_runs(self) -> None:
        """Delete what a killed run left, and runs that count something else."""
        for path in self._folder.glob("run-*.part-*.npy"):
            name = _RUN_NAME.fullmatch(path.name)
            if name and int(name[1]) not in self._runs:
                path.unlink()


def _write_words(path: Path, words: WordCounts) -> None:
    with storage_errors(path), path.open("wb") as file:
        for array in (words.text, words.ends, words.counts):
            # As np.save, which does not tell a full disk from other trouble.
            write_array_header_1_0(file, header_data_from_array_1_0(array))
            file.write(array.data)


def _read_words(path: Path) -> WordCounts:
    with storage_errors(path, "reading"), path.open("rb") as file:
        try:
            text, ends, counts = (np.load(file, allow_pickle=False) for _ in range(3))
        except (ValueError, EOFError):
            raise FormatError(
                "is damaged", where=str(path), hint="delete its folder and count again"
            ) from None
    text.flags.writeable = False
    return WordCounts(text, ends, counts)
