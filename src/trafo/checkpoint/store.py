"""The checkpoints of a run: a folder for each, complete or absent, verified when read.

    checkpoints/
      step-00000500/
        model.safetensors      the weights; the header says which model they belong to
        training.safetensors   the optimizers' moments, and the random generator's state
        state.json             the trainer's state, and the optimizers' counters
        manifest.json          written last: size and SHA-256 of each of the others
      best.json                which step was best so far
      average/                 the mean of the weights of the newest few, if it was asked for

A checkpoint is written beside the others, forced to disk and renamed. The newest few and the best
one are kept. Nothing is ever unpickled: the files are safetensors and JSON.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from trafo.checkpoint.locate import MANIFEST
from trafo.checkpoint.snapshot import Snapshot, read_tensors, write_tensors
from trafo.errors import FormatError, InputError, TrafoError
from trafo.runtime.atomic import (
    atomic_folder,
    atomic_write,
    discard,
    remove_leftovers_in,
    storage_errors,
)
from trafo.runtime.console import say
from trafo.runtime.json_text import parse_json

_MODEL, _TRAINING, _STATE = "model.safetensors", "training.safetensors", "state.json"
_BEST = "best.json"
_FORMAT = "trafo run checkpoint 3"
_NAME = re.compile(r"step-(\d{8,})")

T = TypeVar("T")


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint, read and verified."""

    step: int
    snapshot: Snapshot
    state: dict[str, Any]
    """of the trainer"""
    model: dict[str, Any]
    """which model the weights belong to: its name, its class and its config"""


class CheckpointStore:
    """The folder of a run's checkpoints. One process writes to it."""

    def __init__(self, folder: str | Path, keep: int = 2) -> None:
        self.folder = Path(folder)
        self.keep = keep
        self._sound: dict[int, bool] = {}

    def save(
        self,
        step: int,
        snapshot: Snapshot,
        state: dict[str, Any],
        model: dict[str, Any],
        *,
        is_best: bool = False,
    ) -> Path:
        """Write a checkpoint, then delete the old ones."""
        with storage_errors(self.folder, "making the folder"):
            self.folder.mkdir(parents=True, exist_ok=True)
        path = self.path(step)
        _write(path, step, snapshot, state | {"numbers": snapshot.numbers}, model)
        if is_best:
            with atomic_write(self.folder / _BEST, "w") as file:
                json.dump({"step": step}, file)
        self._sound[step] = True
        self._forget_old(step)
        return path

    def save_average(self, last: int) -> list[int]:
        """Save the mean of the newest weights (checkpoint averaging) and return their steps.

        Weights that were never trained do not count.
        """
        steps = [step for step in self.steps() if step][-last:]
        if len(steps) < last:
            raise InputError(
                f"{len(steps)} checkpoints, {last} were to be averaged",
                where=str(self.folder),
                hint="train with checkpoint.keep as high as that, or average fewer",
            )
        every, models = zip(*(read_weights(self.path(step)) for step in steps), strict=True)
        mean = Snapshot(average(every), moments={})
        _write(self.average_path, steps[-1], mean, {"averaged_steps": steps}, models[-1])
        return steps

    @property
    def average_path(self) -> Path:
        """Where the mean of several checkpoints is, or would be."""
        return self.folder / "average"

    def steps(self, *, complete: bool = True) -> list[int]:
        """The steps of which there is a checkpoint, in order, by default only `complete` ones."""
        return sorted(
            int(match[1])
            for path in self._entries()
            if (match := _NAME.fullmatch(path.name))
            and ((path / MANIFEST).is_file() or not complete)
        )

    @property
    def best_step(self) -> int | None:
        """The step marked as best, if its checkpoint is there."""
        try:
            step = parse_json((self.folder / _BEST).read_text())["step"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return step if step in self.steps() else None

    def newest(self) -> Checkpoint:
        """Read the newest intact checkpoint and report damaged ones after it."""
        return self.newest_read_by(read_checkpoint)

    def newest_read_by(self, read: Callable[[Path], T], report: Callable[[str], None] = say) -> T:
        """As `newest`, but reads only a part, by `read`."""
        for step in reversed(self.steps(complete=False)):
            try:
                return read(self.path(step))
            except FormatError as error:
                report(f"{error}; using the checkpoint before it")
        raise InputError(
            "no usable checkpoint",
            where=str(self.folder),
            hint="start a new run",
        )

    def path(self, step: int) -> Path:
        """Where the checkpoint of a step is, or would be."""
        return self.folder / f"step-{step:08d}"

    def remove_leftovers(self) -> None:
        """Delete what a killed process left. Only for the process that writes here."""
        remove_leftovers_in(self.folder)

    def _forget_old(self, newest: int) -> None:
        # Later ones do not count: training went back before them because they are damaged.
        num_sound = 0
        for step in reversed(self.steps(complete=False)):
            if step > newest:
                continue
            if num_sound < self.keep:
                num_sound += self._is_sound(step)
            elif step != self.best_step and not self.path(step).is_symlink():
                discard(self.path(step))

    def _is_sound(self, step: int) -> bool:
        """Whether it could be resumed from, for which each one is read at most once."""
        if step not in self._sound:
            try:
                _check_files(self.path(step), _read_manifest(self.path(step)))
                self._sound[step] = True
            except TrafoError:
                self._sound[step] = False
        return self._sound[step]

    def _entries(self) -> list[Path]:
        return list(self.folder.iterdir()) if self.folder.is_dir() else []


def read_checkpoint(path: str | Path) -> Checkpoint:
    """Read all of a checkpoint's folder, with a `FormatError` that says what is wrong with it."""
    path = Path(path)
    manifest = _read_manifest(path)
    _check_files(path, manifest)
    weights, model = _read_weights(path / _MODEL)
    state = _read_json(path / _STATE)
    numbers = state.pop("numbers", {})
    if not isinstance(numbers, dict) or not all(type(n) in (int, float) for n in numbers.values()):
        raise FormatError("numbers: expected names and numbers", where=str(path / _STATE))
    snapshot = Snapshot(weights, read_tensors(path / _TRAINING), numbers)
    return Checkpoint(manifest["step"], snapshot, state, model)


def read_state(path: Path) -> dict[str, Any]:
    """Read and check only the state of the trainer, which older versions keep without `config`."""
    _check_files(path, _read_manifest(path), only=_STATE)
    state = _read_json(path / _STATE)
    if not isinstance(state.get("config", {}), dict):
        raise FormatError("config: expected names and values", where=str(path / _STATE))
    return state


def read_weights(path: str | Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Only the weights of a checkpoint, checked, and which model they belong to."""
    path = Path(path)
    _check_files(path, _read_manifest(path), only=_MODEL)
    return _read_weights(path / _MODEL)


def read_step(path: str | Path) -> int:
    """Number of training steps of a checkpoint."""
    return int(_read_manifest(Path(path))["step"])


def average(every: Sequence[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of each weight over several checkpoints, added up in float64."""
    return {
        name: torch.stack([weights[name].double() for weights in every]).mean(0).to(tensor.dtype)
        for name, tensor in every[0].items()
    }


def _write(
    path: Path, step: int, snapshot: Snapshot, state: dict[str, Any], model: dict[str, Any]
) -> None:
    if path.is_dir() and not (path / MANIFEST).is_file():
        discard(path)  # it cannot be used, and `newest` has said so
    with atomic_folder(path, marker=MANIFEST) as new:
        write_tensors(new / _MODEL, snapshot.weights, {"model": json.dumps(model)})
        write_tensors(new / _TRAINING, snapshot.moments)
        _write_json(new / _STATE, state)
        _write_json(new / MANIFEST, _manifest(new, step))


def _manifest(folder: Path, step: int) -> dict[str, Any]:
    files = {
        path.name: {"bytes": path.stat().st_size, "sha256": _digest(path)}
        for path in sorted(folder.iterdir())
    }
    return {"format": _FORMAT, "step": step, "files": files}


def _read_manifest(path: Path) -> dict[str, Any]:
    if not (path / MANIFEST).is_file():
        raise FormatError("missing from the checkpoint", where=str(path / MANIFEST))
    manifest = _read_json(path / MANIFEST)
    if not _is_manifest(manifest, path.name):
        raise FormatError("not the manifest of this checkpoint", where=str(path / MANIFEST))
    return manifest


def _is_manifest(manifest: dict[str, Any], folder_name: str) -> bool:
    """It has no checksum of its own: everything that is used of it is checked."""
    try:
        files = [manifest["files"][name] for name in (_MODEL, _TRAINING, _STATE)]
        step, named = manifest["step"], _NAME.fullmatch(folder_name)
        return (
            manifest["format"] == _FORMAT
            and isinstance(step, int)
            and (named is None or int(named[1]) == step)
            and all(isinstance(file["bytes"], int) for file in files)
            and all(isinstance(file["sha256"], str) for file in files)
        )
    except (KeyError, TypeError):
        return False


def _check_files(path: Path, manifest: dict[str, Any], only: str | None = None) -> None:
    for name in (_MODEL, _TRAINING, _STATE) if only is None else (only,):
        file, expected = path / name, manifest["files"][name]
        if not file.is_file():
            raise FormatError("missing from the checkpoint", where=str(file))
        if file.stat().st_size != expected["bytes"]:
            what = f"has {file.stat().st_size:,} bytes, not {expected['bytes']:,}: it was cut off"
            raise FormatError(what, where=str(file))
        if _digest(file) != expected["sha256"]:
            raise FormatError("damaged: wrong checksum", where=str(file))


def _digest(path: Path) -> str:
    with storage_errors(path, "reading"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    tensors = read_tensors(path)
    try:
        with safe_open(path, "pt") as file:
            model = parse_json(file.metadata()["model"])
    except (KeyError, TypeError, ValueError, SafetensorError):
        model = None
    if not isinstance(model, dict):
        raise FormatError("does not say which model it belongs to", where=str(path))
    return tensors, model


def _read_json(path: Path) -> dict[str, Any]:
    try:
        with storage_errors(path, "reading"):
            value = parse_json(path.read_text(encoding="utf-8"))
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise FormatError("not a JSON object", where=str(path))
    return value


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")
