"""The numbers of metrics.jsonl for others' tools: TensorBoard, and Weights & Biases if asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

from trafo.errors import MissingPackageError
from trafo.runtime.console import say
from trafo.train.metrics import Record

_NOT_CURVES = ("step", "kind", "batch")


class Board(Protocol):
    """Somewhere to show numbers by step."""

    def add(self, record: Record) -> None: ...

    def close(self) -> None: ...


def open_boards(
    folder: Path, step: int, *, tensorboard: bool, wandb: str | None, settings: dict[str, Any]
) -> list[Board]:
    """Those that were asked for; `step` is the first that is new."""
    boards: list[Board] = []
    if tensorboard:
        try:
            boards.append(TensorBoard(folder, step))
        except ImportError:
            say("no TensorBoard events: the package tensorboard is not installed")
    if wandb is not None:
        boards.append(WeightsAndBiases(wandb, settings))
    return boards


class TensorBoard:
    """Event files in the run's folder."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # What was written of later steps, before a kill, is hidden from view.
        self._writer = SummaryWriter(str(folder), purge_step=step or None)

    def add(self, record: Record) -> None:
        for name, value in _curves(record).items():
            self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        self._writer.close()


class WeightsAndBiases:
    """A run in a project at Weights & Biases."""

    def __init__(self, project: str, settings: dict[str, Any]) -> None:
        try:
            import wandb
        except ImportError as error:
            raise MissingPackageError(
                "watch.wandb needs the package wandb", hint="pip install wandb, or leave it out"
            ) from error
        self._run = wandb.init(project=project, config=settings)

    def add(self, record: Record) -> None:
        self._run.log(_curves(record), step=record["step"])

    def close(self) -> None:
        self._run.finish()


def _curves(record: Record) -> dict[str, float]:
    """`train/loss`, `validation/bits_per_byte` and so on."""
    return {
        f"{record['kind']}/{name}": value
        for name, value in record.items()
        if name not in _NOT_CURVES and isinstance(value, int | float)
    }
