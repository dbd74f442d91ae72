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

import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from trafo.checkpoint.bundle import CHECKPOINTS, TOKENIZER
from trafo.config import load, to_yaml
from trafo.errors import InputError, StorageError
from trafo.runtime.atomic import atomic_write, storage_errors
from trafo.runtime.lock import lock
from trafo.train.config import TrainConfig

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
