"""Metrics by step: metrics.jsonl, TensorBoard, and Weights & Biases if asked.

metrics.jsonl has one JSON object per line:

{"step": 20, "kind": "train", "loss": 5.1, "lr": 0.001, "grad_norm": 0.9, "tokens_per_second": 9000}
{"step": 20, "kind": "validation", "loss": 5.2, "bits_per_byte": 2.3, "seconds": 12.5}
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Iterator, Sequence
from io import BytesIO, FileIO
from pathlib import Path
from socket import gethostname
from time import time
from typing import Any, TypeGuard

from trafo.errors import MissingPackageError, missing_package
from trafo.runtime.atomic import storage_errors
from trafo.runtime.console import say
from trafo.runtime.json_text import parse_json
from trafo.training.config import TrainConfig

Record = dict[str, Any]

_NOT_CURVES = ("step", "kind", "batch", "total_tokens", "tokens", "held_out_tokens")
_NUMBERS = (
    *("step", "loss", "standard_error", "seconds", "tokens_per_second", "bits_per_byte"),
    *("perplexity", "bleu", "tokens", "held_out_tokens"),
)


class AppendedFile:
    """A file that grows at its end. What a full disk refuses is kept, and written later."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: FileIO | None = None
        self._pending = b""

    def append(self, data: bytes) -> None:
        """Write it after all that is still to be written; others can read it at once."""
        self._pending += data
        with storage_errors(self.path):
            if self._file is None:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self.path.open("ab", buffering=0)
            while self._pending:
                self._pending = self._pending[self._file.write(self._pending) :]

    def close(self) -> None:
        """Try once more to write what is left, and close the file."""
        try:
            self.append(b"")
        finally:
            if self._file is not None:
                self._file.close()


class MetricsFile(AppendedFile):
    """Appends lines; another process can read each of them when `add` returns."""

    def __init__(self, path: Path, after_step: int, num_records: int = 0) -> None:
        """Continue after a step: records of later steps are dropped, they will come again.

        If there are fewer than `num_records` before it, or damaged lines among them, say so.
        """
        super().__init__(path)
        if not path.exists() and not num_records:
            return
        with storage_errors(path):
            path.touch()
            data = path.read_bytes()
            *lines, rest = data.split(b"\n")
            lines += [rest] if _parse(rest) else []  # else cut off by a kill, which is no damage
            steps = [record["step"] if (record := _parse(line)) else None for line in lines]
            kept = [i for i, step in enumerate(steps) if step is not None and step <= after_step]
            size = sum(len(line) + 1 for line in lines[: max(kept, default=-1) + 1])
            os.truncate(path, min(size, len(data)))  # needs no space, unlike writing it anew
        self._pending = b"\n" if size > len(data) else b""
        missing = max(steps.count(None), num_records - len(kept))
        if missing > 0:
            say(f"{path} is damaged: {missing:,} records are missing or cannot be read")

    def add(self, record: Record) -> None:
        """One more line."""
        self.append(json.dumps(record).encode() + b"\n")


def newest_validation(records: Sequence[Record]) -> Record | None:
    """The newest validation; of the last step, the one on the most tokens."""
    kinds = ("validation", "final")
    return next((r for r in reversed(records) if r.get("kind") in kinds), None)


def describe_validation(record: Record) -> str:
    """`on all 68,362 held-out tokens, standard error 0.6 %`."""
    tokens, held_out = record.get("tokens"), record.get("held_out_tokens")
    if tokens is None or held_out is None:
        return "on held-out tokens" if tokens is None else f"on {tokens:,} tokens"
    share = "all" if tokens == held_out else f"{tokens:,} of"
    error = (record.get("standard_error") or math.nan) / (record["loss"] or math.nan)
    certainty = "" if math.isnan(error) else f", standard error {100 * error:.2g} %"
    return f"on {share} {held_out:,} held-out tokens{certainty}"


def read_metrics(path: str | Path) -> list[Record]:
    """All complete lines; one cut off by a kill is skipped."""
    return list(_records(Path(path)))


def _records(path: Path) -> Iterator[Record]:
    with storage_errors(path, "reading"), path.open("rb") as file:
        for line in file:
            if record := _parse(line):
                yield record


def _parse(line: bytes) -> Record | None:
    try:
        record = parse_json(line.decode(errors="replace"))
    except ValueError:
        return None
    return record if _is_sound(record) else None


def _is_sound(record: object) -> TypeGuard[Record]:
    """Whether it has what every record has, and numbers where readers expect them."""
    if not isinstance(record, dict) or not isinstance(record.get("kind"), str):
        return False
    if not isinstance(record.get("step"), int) or record.get("loss") is None:
        return False
    if not all(_is_number(record[name]) for name in _NUMBERS if record.get(name) is not None):
        return False
    return math.isfinite(record.get("seconds") or 0)  # a loss may be infinite, a time may not


def _is_number(value: object) -> bool:
    """One that fits into 64 bits: JSON has integers of any length."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 1 << 63)


class TensorBoard(AppendedFile):
    """An event file in the run's folder; TensorBoard's own writer dies of a full disk."""

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        name = f"events.out.tfevents.{time():.6f}.{gethostname()}.{os.getpid()}"
        super().__init__(folder / name)
        self._event = Event
        self._pending = self._framed(file_version="brain.Event:2")
        if step:  # later steps, written before a kill, are hidden
            start = SessionLog(status=SessionLog.START)
            self._pending += self._framed(step=step, session_log=start)

    def add(self, record: Record) -> None:
        """Log one record."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        curves = _curves(record).items()
        values = [Summary.Value(tag=name, simple_value=value) for name, value in curves]
        self.append(self._framed(step=record["step"], summary=Summary(value=values)))

    def _framed(self, **content: Any) -> bytes:
        """An event as event files hold it, with its length and checksums."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        frame = BytesIO()
        RecordWriter(frame).write(self._event(wall_time=time(), **content).SerializeToString())
        return frame.getvalue()


class WeightsAndBiases:
    """A run in a project at Weights & Biases."""

    def __init__(self, project: str, settings: dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise missing_package("wandb", "watch.wandb needs") from error
        self._run = wandb.init(project=project, config=settings)

    def add(self, record: Record) -> None:
        """Log one record."""
        self._run.log(_curves(record), step=record["step"])

    def close(self) -> None:
        """Finish the run."""
        self._run.finish()


Board = TensorBoard | WeightsAndBiases


def open_boards(folder: Path, step: int, config: TrainConfig) -> list[Board]:
    """The boards that the config asks for; they already have records up to `step`."""
    boards: list[Board] = []
    if config.watch.tensorboard:
        try:
            boards.append(TensorBoard(folder, step))
        except ImportError:
            say("no TensorBoard events: the package tensorboard is not installed")
    if config.watch.wandb is not None:
        try:
            boards.append(WeightsAndBiases(config.watch.wandb, dataclasses.asdict(config)))
        except MissingPackageError:
            raise
        except Exception as error:  # of the network, of the account
            say(f"not logged to Weights & Biases: {type(error).__name__}: {error}")
    return boards


def _curves(record: Record) -> dict[str, float]:
    """`train/loss`, `validation/bits_per_byte` and so on."""
    return {
        f"{record['kind']}/{name}": value
        for name, value in record.items()
        if name not in _NOT_CURVES and isinstance(value, int | float)
    }
