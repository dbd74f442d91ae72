"""Word counts on disk: what a killed count goes on from, and where counts go when memory is short.

A folder holds runs, each the content of the counters at some moment, cut into parts by the words'
hash, so that one part of all runs can be added up at a time:

    manifest.json        what is counted, how far, and how many runs are valid
    run-0000.part-00.npy ...

A run counts only once the manifest says so; the manifest is replaced as a whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from trafo.runtime.atomic import atomic_write, storage_errors
from trafo.tokenizer.count import WordCounter, WordCounts, merge_counts
from trafo.tokenizer.reading import Position

NUM_PARTS = 16

_MANIFEST = "manifest.json"


class CountStore:
    """The runs in one folder, for one input and one way of counting it (the key)."""

    def __init__(self, folder: Path, key: Mapping[str, Any]) -> None:
        self._folder = folder
        self._key = json.loads(json.dumps(key))
        with storage_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        self.position, self.num_runs = self._read_manifest()
        self._remove_runs_from(self.num_runs)

    def _read_manifest(self) -> tuple[Position, int]:
        """Where the runs that are there end; the beginning if they count something else."""
        try:
            manifest = json.loads((self._folder / _MANIFEST).read_text())
            if manifest["key"] == self._key:
                return Position(**manifest["position"]), int(manifest["num_runs"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # none, or not one of ours: count from the beginning
        return Position(), 0

    def add_run(self, counters: Sequence[WordCounter], position: Position) -> None:
        """Store what the counters hold, which then are empty, and how far they have come."""
        for part in range(NUM_PARTS):
            words = merge_counts(counter.export(part, NUM_PARTS) for counter in counters)
            _write_words(self._path(self.num_runs, part), words)
        self.position = position
        self.num_runs += 1
        manifest = {"key": self._key, "position": asdict(position), "num_runs": self.num_runs}
        with atomic_write(self._folder / _MANIFEST, "w") as file:
            json.dump(manifest, file)
        for counter in counters:
            counter.clear()

    def parts(self) -> Iterator[WordCounts]:
        """All counts, one part after the other; every word is in exactly one part."""
        for part in range(NUM_PARTS):
            runs = (_read_words(self._path(run, part)) for run in range(self.num_runs))
            yield merge_counts(runs) if self.num_runs > 1 else next(runs)

    def remove(self) -> None:
        """Delete all that is here."""
        (self._folder / _MANIFEST).unlink(missing_ok=True)
        self._remove_runs_from(0)
        self._folder.rmdir()

    def _path(self, run: int, part: int) -> Path:
        return self._folder / f"run-{run:04}.part-{part:02}.npy"

    def _remove_runs_from(self, first: int) -> None:
        """Delete what a killed run left, and files that count something else."""
        for path in self._folder.glob("run-*.part-*.npy"):
            if int(path.name[4:8]) >= first:
                path.unlink()


def _write_words(path: Path, words: WordCounts) -> None:
    with storage_errors(path), path.open("wb") as file:
        for array in (words.text, words.ends, words.counts):
            np.save(file, array, allow_pickle=False)


def _read_words(path: Path) -> WordCounts:
    with storage_errors(path, "reading"), path.open("rb") as file:
        text, ends, counts = (np.load(file, allow_pickle=False) for _ in range(3))
    text.flags.writeable = False
    return WordCounts(text, ends, counts)
