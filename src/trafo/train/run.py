"""A run's folder: what is in it, how a new one is found, which was the last.

runs/tinystories/
  config.yaml      the resolved config: what `trafo resume` reads
  tokenizer/       the tokenizer
  checkpoints/     see `trafo.checkpoint.store`
  metrics.jsonl    one line for each entry
  samples.txt      what the model wrote on the way
  loss.png         the curve
  tensorboard/     the same numbers for TensorBoard
"""

from __future__ import annotations

import dataclasses
import math
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from trafo.checkpoint.bundle import CHECKPOINTS, TOKENIZER
from trafo.config import load, to_yaml
from trafo.data.prepare import Dataset
from trafo.errors import FormatError, InputError, StorageError
from trafo.runtime.atomic import atomic_write, storage_errors
from trafo.runtime.lock import lock
from trafo.train.config import TrainConfig
from trafo.train.plan import Plan

RUNS = Path("runs")
LATEST = "latest"
CONFIG = "config.yaml"


@dataclass(frozen=True)
class RunFolder:
    """The paths of one run."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / CONFIG

    @property
    def tokenizer(self) -> Path:
        return self.path / TOKENIZER

    @property
    def checkpoints(self) -> Path:
        return self.path / CHECKPOINTS

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def samples(self) -> Path:
        return self.path / "samples.txt"

    @property
    def curve(self) -> Path:
        return self.path / "loss.png"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    @classmethod
    def new(cls, config: TrainConfig) -> RunFolder:
        """The folder for a run that begins; made, and not yet used by another run."""
        path = config.out or _free_name(config)
        folder = cls(path)
        if folder.config.exists():
            raise StorageError(
                "already holds a run",
                where=str(path),
                hint=f"go on with `trafo resume {path}`, or choose another --out",
            )
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise StorageError("is not empty", where=str(path), hint="choose another --out")
        with storage_errors(path, "making the folder"):
            path.mkdir(parents=True, exist_ok=True)
        return folder

    @classmethod
    def existing(cls, path: str | Path) -> RunFolder:
        """The folder of a run that is there."""
        folder = cls(Path(path))
        if not folder.config.is_file():
            what = "is no run: it has no config.yaml" if folder.path.exists() else "no such run"
            raise InputError(what, where=str(path), hint="`trafo runs` lists what there is")
        return folder

    def write_config(self, config: TrainConfig) -> None:
        with atomic_write(self.config, "w") as file:
            file.write(to_yaml(config))

    def read_config(self, flags: list[str] | None = None, prog: str | None = None) -> TrainConfig:
        return load(TrainConfig, self.config, flags or [], prog=prog)

    def hold(self) -> IO[bytes]:
        """Keep other processes from training in this folder, until the returned file is closed."""
        path = self.path / ".lock"
        with storage_errors(path):
            file = path.open("ab")
        try:
            lock(file, self.path)
        except BaseException:
            file.close()
            raise
        return file

    def remove(self) -> None:
        """Delete a run that never began."""
        shutil.rmtree(self.path, ignore_errors=True)

    def mark_latest(self) -> None:
        """Let `runs/latest`, beside the run, lead to it."""
        link = self.path.parent / LATEST
        if link.exists() and not link.is_symlink():
            return  # somebody's own folder
        # Made beside and renamed, so that there is one at every instant.
        new = link.with_name(f".{LATEST}.{secrets.token_hex(4)}")
        with storage_errors(link):
            new.symlink_to(self.path.name)
            new.replace(link)


def _free_name(config: TrainConfig) -> Path:
    source = config.text[0] if config.text else str(config.data.tokens or "run")
    stem = Path(source).name.split(".")[0].strip("*") or "run"
    path, number = RUNS / stem, 2
    while path.exists() or stem == LATEST:
        path = RUNS / f"{stem}-{number}"
        number += 1
        stem = stem if stem != LATEST else "run"
    return path


@dataclass
class State:
    """Changes from step to step."""

    plan: Plan
    step: int = 0
    """updates made so far; also the position in the data, which follows from it"""
    seconds: float = 0.0
    """wall-clock of all sessions of this run"""
    attempt: int = 0
    """how often it went back because of a loss that was no number; decides the batches too"""
    validation_loss: float | None = None
    best_loss: float = math.inf
    """the lowest validation loss of a saved checkpoint"""

    def to_json(self, dataset: Dataset) -> dict[str, Any]:
        values = dataclasses.asdict(self)
        best = None if math.isinf(self.best_loss) else self.best_loss
        return values | {"best_loss": best, "data": describe(dataset)}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> State:
        try:
            values = {key: value for key, value in values.items() if key != "data"}
            best = values.pop("best_loss")
            plan = Plan(**values.pop("plan"))
            return cls(plan=plan, best_loss=math.inf if best is None else best, **values)
        except (KeyError, TypeError) as error:
            raise FormatError(f"a checkpoint's state.json is incomplete: {error}") from None


def describe(dataset: Dataset) -> dict[str, Any]:
    """What tells one data set from another, at no cost."""
    return {
        "tokenizer": dataset.tokenizer.hash,
        "training_ids": len(dataset.training),
        "validation_ids": len(dataset.validation),
    }


def check_same_data(saved: dict[str, Any], dataset: Dataset) -> None:
    """A run goes on with the data it began with."""
    if saved != describe(dataset):
        raise InputError(
            "the data is not what this run was trained on so far",
            hint="put the text back as it was, or begin a new run",
        )
