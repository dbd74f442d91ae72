"""Metrics by step: metrics.jsonl, TensorBoard, and Weights & Biases if asked.

metrics.jsonl has one JSON object per line:

{"step": 20, "kind": "train", "loss": 5.1, "lr": 0.001, "grad_norm": 0.9, "tokens_per_second": 9000}
{"step": 20, "kind": "validation", "loss": 5.2, "bits_per_byte": 2.3, "seconds": 12.5}
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from trafo.errors import missing_package
from trafo.runtime.atomic import atomic_write, storage_errors
from trafo.runtime.console import say
from trafo.runtime.json_text import parse_json
from trafo.train.config import TrainConfig

Record = dict[str, Any]

_NOT_CURVES = ("step", "kind", "batch", "total_tokens", "tokens", "held_out_tokens")
_NUMBERS = (
    *("step", "loss", "standard_error", "seconds", "tokens_per_second", "bits_per_byte"),
    *("perplexity", "bleu", "tokens", "held_out_tokens"),
)


class MetricsFile:
    """Appends lines; another process can read each of them when `add` returns."""

    def __init__(self, path: Path, after_step: int) -> None:
        """Continue after a step: records of later steps are dropped, they will come again."""
        if path.exists():
            kept = [record for record in read_metrics(path) if record["step"] <= after_step]
            with atomic_write(path, "w") as file:
                file.writelines(json.dumps(record) + "\n" for record in kept)
        self.path = path
        with storage_errors(path):
            self._file = path.open("a", encoding="utf-8")

    def add(self, record: Record) -> None:
        """One more line."""
        with storage_errors(self.path):
            self._file.write(json.dumps(record) + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        with storage_errors(self.path):
            self._file.close()


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
    with storage_errors(path, "reading"), path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                record = parse_json(line)
            except ValueError:
                continue
            if _is_sound(record):
                yield record


def _is_sound(record: object) -> bool:
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


class TensorBoard:
    """Event files in the run's folder."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Later steps, written before a kill, are hidden.
        self._writer = SummaryWriter(str(folder), purge_step=step or None)

    def add(self, record: Record) -> None:
        """Log one record."""
        for name, value in _curves(record).items():
            self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        """Close the event file."""
        self._writer.close()


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
        boards.append(WeightsAndBiases(config.watch.wandb, dataclasses.asdict(config)))
    return boards


def _curves(record: Record) -> dict[str, float]:
    """`train/loss`, `validation/bits_per_byte` and so on."""
    return {
        f"{record['kind']}/{name}": value
        for name, value in record.items()
        if name not in _NOT_CURVES and isinstance(value, int | float)
    }
