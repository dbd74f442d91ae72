"""metrics.jsonl: what happened at which step, one JSON object a line.

{"step": 20, "kind": "train", "loss": 5.1, "lr": 0.001, "grad_norm": 0.9, "tokens_per_second": 9000}
{"step": 20, "kind": "validation", "loss": 5.2, "bits_per_byte": 2.3, "seconds": 12.5}
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from trafo.runtime.atomic import atomic_write, storage_errors

Record = dict[str, Any]


class MetricsFile:
    """Adds lines at the end; each is on its way to the disk when `add` returns."""

    def __init__(self, path: Path, after_step: int) -> None:
        """Go on after a step: what was written of later ones is dropped, it will come again."""
        if path.exists():
            kept = [record for record in read_metrics(path) if record["step"] <= after_step]
            with atomic_write(path, "w") as file:
                file.writelines(json.dumps(record) + "\n" for record in kept)
        self.path = path
        with storage_errors(path):
            self._file = path.open("a", encoding="utf-8")

    def add(self, record: Record) -> None:
        with storage_errors(self.path):
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def close(self) -> None:
        with storage_errors(self.path):
            self._file.close()


def read_metrics(path: str | Path) -> list[Record]:
    """All whole lines; one that a kill has cut off is left out."""
    return list(_records(Path(path)))


def _records(path: Path) -> Iterator[Record]:
    with storage_errors(path, "reading"), path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict) and isinstance(record.get("step"), int):
                yield record
