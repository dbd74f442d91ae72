"""Run the trainings of an experiment, several at a time, each in a process with its own threads.

If it is killed and started again, finished runs stay and interrupted ones resume. A run that fails
does not stop the others. It is reported at the end, and tried again the next time.
"""

from __future__ import annotations

import json
import signal
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import yaml  # type: ignore[import-untyped]

from trafo.config import to_yaml
from trafo.data.prepare import DataConfig
from trafo.errors import StorageError
from trafo.experiments.live import Watch
from trafo.experiments.plan import PlannedRun
from trafo.experiments.program import LocalProgram, LostProgramError, Program
from trafo.experiments.result import read_result
from trafo.experiments.spec import Problems
from trafo.runtime.console import say
from trafo.runtime.process import handle_signals
from trafo.training.build import make_task
from trafo.training.config import TrainConfig
from trafo.training.distributed import ranks
from trafo.training.run import Run
from trafo.training.tasks.language import LanguageModelling, check_fit

_LOOK_EVERY = 0.2
_PAUSE_AFTER_LOSS = 2.0  # seconds, for what is left of a program to notice and save


class Worker:
    """Trains one run at a time, in a program here or elsewhere; see `worker.py`."""

    def __init__(self, program: Program) -> None:
        self.run: PlannedRun | None = None
        self.program = program

    def start(self, run: PlannedRun, pause_at: int | None) -> None:
        """Begin a run, or resume it."""
        self.run = run
        task = {"config": asdict(run.config), "pause_at": pause_at}
        self.program.send(json.dumps(task, default=str))

    def ended(self) -> str | None:
        """How the run has ended: "" if well, else what went wrong; None while it is in progress."""
        line = self.program.answer()
        if line is None:
            return None
        if not line:
            return "its process died"
        answer = json.loads(line)
        code, said = answer["code"], answer["said"]
        if code < 0:
            return f"killed by {signal.Signals(-code).name}, perhaps out of memory"
        return str(said) or (f"exit code {code}" if code else "")


@dataclass
class Executor:
    """Trains the runs, `jobs` at a time with `threads` each."""

    jobs: int
    threads: int
    display: Watch
    start_program: Callable[[int], Program] = LocalProgram
    """from the number of threads to a program that trains runs"""
    problems: list[str] = field(default_factory=list)

    def make(self, runs: Sequence[PlannedRun], pause_at: dict[str, int] | None = None) -> None:
        """Train those that are not done; with `pause_at`, up to a step."""
        waiting = deque(run for run in runs if read_result(run.folder) is None)
        workers: list[Worker] = []
        with handle_signals(_interrupt, signal.SIGTERM):
            try:
                while waiting or workers:
                    while waiting and len(workers) < self.jobs:
                        workers.append(Worker(self.start_program(self.threads)))
                        self._give(workers[-1], waiting, pause_at or {})
                    self.display.update([worker.run for worker in workers if worker.run])
                    time.sleep(_LOOK_EVERY)
                    for worker in [*workers]:
                        if self._has_ended(worker, waiting) and not (
                            worker.program.is_alive and self._give(worker, waiting, pause_at or {})
                        ):
                            workers.remove(worker)
                            worker.program.close()
            finally:
                for worker in workers:
                    worker.program.stop()
                for worker in workers:
                    worker.program.close()

    def _give(self, worker: Worker, waiting: deque[PlannedRun], pause_at: dict[str, int]) -> bool:
        """Give it the next run; False if there is none."""
        if not waiting:
            return False
        run = waiting.popleft()
        worker.start(run, pause_at.get(run.name))
        return True

    def _has_ended(self, worker: Worker, waiting: deque[PlannedRun]) -> bool:
        run = worker.run
        assert run is not None
        try:
            problem = worker.ended()
        except LostProgramError as error:
            say(f"{run.name}: {error}; it resumes elsewhere")
            time.sleep(_PAUSE_AFTER_LOSS)
            waiting.append(run)
            return True
        if problem is None:
            return False
        if problem:
            self.problems.append(f"{run.name}: {problem}")
        self.display.ended(run, problem or None)
        return True


def _interrupt(number: int, frame: object) -> None:
    """SIGTERM, too, is a KeyboardInterrupt: the runs are stopped on the way out."""
    raise KeyboardInterrupt


def prepare_data(runs: Sequence[PlannedRun]) -> None:
    """Make tokenizers and token files once, and check that every run suits them."""
    problems = Problems()
    tasks: dict[object, object] = {}
    for run in runs:
        config = run.config
        key = _data_of(config)
        with problems.noted(run.cell), ranks() as mine:
            if key not in tasks:
                tasks[key] = make_task(config, mine)
            task = tasks[key]
            if isinstance(task, LanguageModelling):
                check_fit(config, task.data, 1)
    problems.raise_if_any()


def _data_of(config: TrainConfig) -> tuple[object, ...]:
    """The settings that determine tokenizer and token file."""
    data: DataConfig = config.data
    sources = (config.text, config.pairs, config.validation, data)
    if config.translates:
        return (*sources, config.translation, config.model_config)
    return (*sources, config.language_model.vocab_size)


def refuse_other_runs(runs: Sequence[PlannedRun]) -> None:
    """Raise if a folder holds a run with other settings than those it should have now."""
    problems = Problems()
    for run in runs:
        file = Run(run.folder).config_file
        if file.is_file():
            with problems.noted(run.name):
                _refuse_other(run, yaml.safe_load(file.read_text(encoding="utf-8")))
    problems.raise_if_any()


def _refuse_other(run: PlannedRun, had: dict[str, Any]) -> None:
    key = _first_difference(had, yaml.safe_load(to_yaml(run.config)))
    if key is not None:
        raise StorageError(
            f"was started with a different {key}",
            where=str(run.folder),
            hint="choose another --out, or delete the folder",
        )


def _first_difference(had: dict[str, Any], wanted: dict[str, Any], prefix: str = "") -> str | None:
    """The key of a setting that both have with different values; the machine does not matter."""
    for name, value in wanted.items():
        key = prefix + name
        if name not in had or key in ("machine", "out"):
            continue
        if isinstance(value, dict) and isinstance(had[name], dict):
            if (inner := _first_difference(had[name], value, f"{key}.")) is not None:
                return inner
        elif had[name] != value:
            return key
    return None
