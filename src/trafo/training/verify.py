"""Check, for a user's own config, that a killed run resumes bit for bit.

An uninterrupted run is compared with one that is killed (`kill -9`) several times and resumed, each
in processes of its own: every tensor of the last checkpoint, every number in it, every loss, and
the tokens of every batch.
"""

from __future__ import annotations

import dataclasses
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from trafo.checkpoint.store import Checkpoint, CheckpointStore
from trafo.config import to_yaml
from trafo.errors import TrafoError
from trafo.runtime.progress import Bar, progress
from trafo.training.config import CheckpointConfig, TrainConfig, WatchConfig
from trafo.training.run import Run

_PATIENCE = 600.0
_LOOK_EVERY = 0.02


@dataclass(frozen=True)
class Verdict:
    """What was compared, and what differs."""

    steps: int
    killed_at: list[int]
    tensors: int
    numbers: int
    records: int
    different: list[str]

    @property
    def is_exact(self) -> bool:
        """Whether the two runs are the same in every bit."""
        return not self.different


def verify_resume(config: TrainConfig, folder: Path, *, steps: int, kills: int) -> Verdict:
    """Train twice in `folder`, once uninterrupted and once killed `kills` times."""
    short = _shortened(config, steps)
    straight = _Subject(dataclasses.replace(short, out=folder / "straight"))
    broken = _Subject(dataclasses.replace(short, out=folder / "broken"))
    with progress("training", total=2 * steps, unit="steps") as bar:
        straight.finish(bar)
        killed_at = list(broken.finish_with_kills(kills, bar))
    one, other = straight.newest(), broken.newest()
    return Verdict(
        steps=steps,
        killed_at=killed_at,
        tensors=len(_tensors(one)),
        numbers=len(one.snapshot.numbers) + len(_timeless(one)),
        records=len(straight.records()),
        different=[
            *_differences("tensor", _tensors(one), _tensors(other)),
            *_differences("number", one.snapshot.numbers, other.snapshot.numbers),
            *_differences("state", _timeless(one), _timeless(other)),
            *_differences("record", straight.records(), broken.records()),
        ],
    )


def _shortened(config: TrainConfig, steps: int) -> TrainConfig:
    """The same training, but short, with a record for every step and no budget."""
    return dataclasses.replace(
        config,
        steps=steps,
        budget=None,
        # One number: with another one sums may round differently, and that is not resuming.
        machine=dataclasses.replace(config.machine, threads=config.machine.threads or 1),
        watch=WatchConfig(
            log_every=1,
            evaluate_every=max(1, steps // 3),
            evaluate_tokens=4 * config.seq,
            sample_every=0,
            tensorboard=False,
        ),
        checkpoint=CheckpointConfig(every=max(1, steps // 5)),
    )


class _Subject:
    """One of the two runs, in processes of its own."""

    def __init__(self, config: TrainConfig) -> None:
        assert config.out is not None
        self.config = config
        self.run = Run(config.out)

    def finish(self, bar: Bar) -> None:
        """Start or resume it, and wait until it ends."""
        with self._process() as process:
            for _ in self._watch(process, bar):
                pass
            _check(process)

    def finish_with_kills(self, kills: int, bar: Bar) -> Iterator[int]:
        """Yields the steps after which it was killed; they are spread over the run."""
        steps, chance = self.config.steps, random.Random(self.config.seed)
        share = steps / (kills + 1)
        for index in range(kills):
            at_least = share * (index + 1 + chance.uniform(-0.4, 0.4))
            with self._process() as process:
                for step in self._watch(process, bar):
                    if step >= at_least:
                        time.sleep(chance.uniform(0, 0.1))  # anywhere in a step, or while saving
                        process.kill()
                        break
                else:
                    _check(process)
                    return
            yield self._last_step()
        self.finish(bar)

    def newest(self) -> Checkpoint:
        return CheckpointStore(self.run.checkpoint_folder).newest()

    def records(self) -> dict[str, Any]:
        """Losses, gradient norms and batches by step; what depends on the clock is left out."""
        return {
            f"{record['kind']} {name} of step {record['step']}": record[name]
            for record in self.run.metrics
            for name in ("loss", "grad_norm", "batch")
            if name in record
        }

    @contextmanager
    def _process(self) -> Iterator[subprocess.Popen[bytes]]:
        """One that starts or resumes the run, and does not outlive the block."""
        path = self.run.path
        if self.run.config_file.exists():
            arguments = ["resume", str(path)]
        else:
            recipe = path.with_suffix(".yaml")
            recipe.write_text(to_yaml(self.config), encoding="utf-8")
            arguments = ["train", "--config", str(recipe)]
        command = [sys.executable, "-m", "trafo", *arguments, "--quiet"]
        silent, piped = subprocess.DEVNULL, subprocess.PIPE
        with subprocess.Popen(command, stdout=silent, stderr=piped) as process:
            try:
                yield process
            finally:
                process.kill()

    def _watch(self, process: subprocess.Popen[bytes], bar: Bar) -> Iterator[int]:
        """The steps that the process has recorded, as they come, until it ends."""
        seen, deadline = self._last_step(), time.monotonic() + _PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            step = self._last_step()
            if step > seen:
                bar.advance(step - seen)
                seen = step
                yield step
            time.sleep(_LOOK_EVERY)

    def _last_step(self) -> int:
        return max((record["step"] for record in self.run.metrics), default=0)


def _check(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        raise TrafoError("a step takes too long", hint="verify a smaller config")
    if process.returncode:
        assert process.stderr is not None
        lines = process.stderr.read().decode(errors="replace").strip().splitlines()
        raise TrafoError(f"the training failed: {lines[-1] if lines else 'no message'}")


def _tensors(checkpoint: Checkpoint) -> dict[str, Any]:
    return checkpoint.snapshot.weights | checkpoint.snapshot.moments


def _timeless(checkpoint: Checkpoint) -> dict[str, Any]:
    """Without what depends on the clock, and the config, which names the folder of the run."""
    different = ("seconds", "config")
    return {key: value for key, value in checkpoint.state.items() if key not in different}


def _differences(kind: str, ours: dict[str, Any], theirs: dict[str, Any]) -> Iterator[str]:
    for name in sorted(ours.keys() | theirs.keys()):
        if name not in ours or name not in theirs:
            yield f"{kind} {name} is missing in one run"
            continue
        one, other = ours[name], theirs[name]
        if not (one.equal(other) if isinstance(one, Tensor) else one == other):
            yield f"{kind} {name}"
