"""A program: train runs of an experiment, one after the other, each in a process forked from here.

    python -m trafo.experiments.worker

Every line of stdin is a task: the config of a run, and perhaps a step at which to pause. Every line
of stdout says how it ended. Python, torch and the kernels are loaded once for all runs. When stdin
ends, the process that gave the tasks is gone: the run is saved and the processes end.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from dataclasses import replace
from functools import partial
from typing import Any

from trafo.config import with_values
from trafo.errors import TrafoError
from trafo.experiments.plan import tokens_per_step
from trafo.experiments.results import RunResult, measure
from trafo.runtime.machine import peak_memory, reset_peak_memory
from trafo.runtime.progress import set_quiet
from trafo.training.config import TrainConfig
from trafo.training.metrics import Record
from trafo.training.report import Reporter
from trafo.training.run import Run
from trafo.training.start import resume, train

_MAX_RISE = 1.0
"""nats above the first loss; a run whose loss is higher counts as diverged"""
_NUM_RECORDS = 3
"""records whose mean must have risen so far: one spike is not a divergence"""


class DivergedError(Exception):
    """Ends a run: its loss is not finite, or has risen far above the first one."""

    def __init__(self, step: int) -> None:
        self.step = step


class DivergenceReporter(Reporter):
    """Reports as usual, ends a run that diverges, and pauses one at a step.

    It decides by the records in metrics.jsonl, so a resumed run is ended at the same step.
    """

    def __init__(self, run: Run, config: TrainConfig, pause_at: int | None = None) -> None:
        super().__init__(run, config)
        self._pause_at = pause_at
        self._losses: list[float] | None = None

    def step(self, record: Record, *, steps: int, seconds_left: float, is_logged: bool) -> None:
        """Report as usual, then check the loss."""
        if self._losses is None:  # those of earlier sessions
            logged = [r for r in self._run.metrics if r["kind"] == "train"]
            self._losses = [float(r["loss"]) for r in logged if r["step"] < record["step"]]
        super().step(record, steps=steps, seconds_left=seconds_left, is_logged=is_logged)
        if is_logged:
            self._losses.append(float(record["loss"]))
            if has_diverged(self._losses):
                raise DivergedError(record["step"])
        if self._pause_at is not None and self._pause_at <= record["step"] < steps:
            signal.raise_signal(signal.SIGTERM)  # the trainer saves and stops

    def _draw(self) -> None:
        """Draw nothing: the report has all curves, and `trafo plot` draws those of one run."""

    def diverged(self, step: int) -> None:
        """End the run at a loss that is not finite: going back would hide it."""
        raise DivergedError(step)


def has_diverged(losses: list[float]) -> bool:
    """Whether the mean of the newest losses is far above the first one."""
    newest = losses[-_NUM_RECORDS:]
    return len(losses) > _NUM_RECORDS and sum(newest) / len(newest) > losses[0] + _MAX_RISE


def train_run(config: TrainConfig, pause_at: int | None = None) -> RunResult | None:
    """Start or resume the run of a config. The result is None if it was interrupted or paused."""
    assert config.out is not None
    run, listen = Run(config.out), partial(DivergenceReporter, pause_at=pause_at)
    before = reset_peak_memory()
    try:
        if run.config_file.is_file():
            done = resume(run.path, listen=listen)
        else:
            done = train(config, listen=listen)
    except DivergedError as end:
        found: dict[str, Any] = measure(run.metrics)
        found |= {"loss": None, "bits_per_byte": None, "perplexity": None}
        result = RunResult(
            status="diverged", step=end.step, tokens=end.step * tokens_per_step(config), **found
        )
    else:
        if done.stopped_by is not None:
            return None
        assert done.state is not None
        found = measure(run.metrics) | {"seconds": done.state.seconds}
        result = RunResult(
            status="finished", step=done.state.step, tokens=done.state.tokens, **found
        )
    result = replace(result, peak_memory=max(0, peak_memory() - before))
    result.save(run.path)
    return result


def main() -> None:
    """Fork for each task, until SIGTERM, which the run in progress gets too and saves."""
    set_quiet(True)
    _load_dependencies()
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: stopping.append(number))
    while not stopping and (line := sys.stdin.readline()):
        task = json.loads(line)
        reading, writing = os.pipe()
        if (child := os.fork()) == 0:
            os.close(reading)
            os._exit(_train_in_child(task, writing))
        os.close(writing)
        with open(reading, encoding="utf-8") as pipe:  # noqa: PTH123
            error = pipe.read()
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(json.dumps({"code": code, "error": error}) + "\n")
        sys.stdout.flush()


def _load_dependencies() -> None:
    import torch.utils.tensorboard  # noqa: F401

    from trafo.tokenizer import Tokenizer

    Tokenizer({i: bytes([i]) for i in range(256)}, [], [])  # loads the kernels


def _train_in_child(task: dict[str, Any], writing: int) -> int:
    """Train a run and return the exit code: 0 if all is well, 2 for a user's error, 1 for a bug."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    try:
        config = with_values(TrainConfig(), task["config"], "config")
        train_run(config, task.get("pause_at"))
    except Exception as error:
        is_user_error = isinstance(error, TrafoError)
        text = str(error) if is_user_error else f"{type(error).__name__}: {error}"
        os.write(writing, text.encode())
        return 2 if is_user_error else 1
    return 0


def _stop_with_parent() -> None:
    """Save and stop when the other end of stdin is closed, even by `kill -9`."""
    # No task comes before this run has ended, so there is nothing to read but the end.
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
