"""Train the runs of an experiment, several at a time, each in a process with its own threads.

A run that fails does not stop the others. It is reported at the end, and tried again the next time.
On a terminal a table shows the runs; when piped, there is a line for each.
"""

from __future__ import annotations

import json
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from rich.console import Group
from rich.live import Live

from trafo.account import training_flops
from trafo.cluster.connect import connected, num_cpus
from trafo.cluster.processes import NodeDiedError, RemoteProgram
from trafo.experiments.plan import PlannedRun, tokens_per_step
from trafo.experiments.results import read_result
from trafo.runtime.console import messages, plain_table, say
from trafo.runtime.json_text import parse_json
from trafo.runtime.process import LineProgram, handle_signals
from trafo.runtime.sizes import format_duration, parse_duration
from trafo.training.config import TrainConfig
from trafo.training.run import Run

Program: TypeAlias = LineProgram | RemoteProgram
"""`worker.py` in a process of this machine or of a node of a cluster"""

_WORKER = ["-m", "trafo.experiments.worker"]
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_POLL_SECONDS = 0.2
_SECONDS_AFTER_LOSS = 2.0  # for what is left of a program to notice and save
_TAIL_BYTES = 4096  # of metrics.jsonl, which hold the last records
_MAX_ENDED_ROWS = 8


def start_local_program(threads: int) -> Program:
    """Start a program that trains runs on this machine, limited to its own threads."""
    return LineProgram(_WORKER, dict.fromkeys(_THREADS, str(threads)))


@contextmanager
def connect_cluster(address: str, must_see: Path) -> Iterator[tuple[int, Callable[[int], Program]]]:
    """Connect to a cluster for the block.

    Yields its number of CPUs, and what starts a program on any node that has some to spare.
    `must_see` is a file that every node must find, because it is in the folder of the runs.
    """

    def start_program(threads: int) -> Program:
        environment = dict.fromkeys(_THREADS, str(threads))
        return RemoteProgram(_WORKER, threads, environment, must_see)

    with connected(address):
        yield num_cpus(), start_program


class LiveTable:
    """Shows the runs, and how much of the work of all of them is left."""

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self._runs = {run.name: run for run in runs}
        self._work = {run.name: _work(run.config) for run in runs}
        self._live: Live | None = None
        self._active: Sequence[PlannedRun] = ()
        self._done = {run.name for run in runs if read_result(run.folder) is not None}
        self._ended: deque[tuple[str, str]] = deque(maxlen=_MAX_ENDED_ROWS)
        self._start_time = time.perf_counter()
        self._work_before = self._work_done()

    @contextmanager
    def show(self) -> Iterator[None]:
        """Show it while the block runs."""
        if self._done:
            say(f"{len(self._done)} of {len(self._runs)} runs are done already")
        if not messages().is_terminal:
            yield
            return
        with Live(console=messages(), refresh_per_second=4, transient=True) as self._live:
            yield
        self._live = None

    def update(self, active: Sequence[PlannedRun]) -> None:
        """Redraw with the runs that are being trained."""
        self._active = active
        if self._live is not None:
            self._live.update(self._draw())

    def add_ended(self, run: PlannedRun, problem: str | None) -> None:
        """Note that a run has ended or paused, and print a line when piped."""
        if read_result(run.folder) is not None:
            self._done.add(run.name)
        outcome = problem or _describe_outcome(run)
        self._ended.append((run.name, outcome))
        if self._live is None:
            say(f"{run.name}: {outcome}; {self._describe_progress()}")

    def _describe_progress(self) -> str:
        done = f"{len(self._done)} of {len(self._runs)} runs done"
        work_done = self._work_done()
        if work_done <= self._work_before:  # nothing to estimate the time from
            return done
        rate = (work_done - self._work_before) / (time.perf_counter() - self._start_time)
        left = max(0.0, (sum(self._work.values()) - work_done) / rate)
        return f"{done}, {format_duration(left)} left"

    def _work_done(self) -> float:
        finished = sum(self._work[name] for name in self._done)
        return finished + sum(self._work[run.name] * _fraction_done(run) for run in self._active)

    def _draw(self) -> Group:
        table = plain_table("lrrl", ("arm", "seed", "step", "loss"))
        for name, outcome in self._ended:
            run = self._runs[name]
            table.add_row(run.cell, str(run.seed), "", outcome)
        for run in self._active:
            last = read_last_record(run)
            steps = "" if run.config.budget else f"/{run.config.steps:,}"
            loss = f"{last['loss']:.3f}" if "loss" in last else "starting"
            table.add_row(run.cell, str(run.seed), f"{last.get('step', 0):,}{steps}", loss)
        return Group(table, self._describe_progress())


def read_last_record(run: PlannedRun) -> dict[str, Any]:
    """Read the newest training record of a run, empty if there is none."""
    path = Run(run.folder).metrics_file
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        for line in reversed(file.read().splitlines()):
            with suppress(ValueError):
                record = parse_json(line)
                if isinstance(record, dict) and record.get("kind") == "train":
                    return record
    return {}


def _work(config: TrainConfig) -> float:
    """Estimate the work of a run, relative to the others."""
    if config.budget is not None:
        return parse_duration(config.budget)
    per_token = 1.0
    if not config.translates:
        per_token = training_flops(config.language_model, config.seq) / config.seq
    return config.steps * tokens_per_step(config) * per_token


def _fraction_done(run: PlannedRun) -> float:
    last = read_last_record(run)
    if run.config.budget is not None:
        return float(min(1.0, last.get("seconds", 0.0) / parse_duration(run.config.budget)))
    return float(min(1.0, last.get("step", 0) / run.config.steps))


def _describe_outcome(run: PlannedRun) -> str:
    result = read_result(run.folder)
    if result is None:
        return f"paused at step {read_last_record(run).get('step', 0):,}"
    if result.status == "diverged":
        return f"diverged at step {result.step:,}"
    return f"loss {result.loss:.3f} after {result.step:,} steps, {format_duration(result.seconds)}"


@dataclass
class Executor:
    """Trains runs, `jobs` at a time with `threads` each."""

    jobs: int
    threads: int
    display: LiveTable
    start_program: Callable[[int], Program] = start_local_program
    """from the number of threads to a program that trains runs"""
    problems: list[str] = field(default_factory=list)

    def train(self, runs: Sequence[PlannedRun], pause_at: dict[str, int] | None = None) -> None:
        """Train the runs that are not done, some of them only up to the step in `pause_at`."""
        waiting = deque(run for run in runs if read_result(run.folder) is None)
        busy: dict[Program, PlannedRun] = {}

        def start_next(program: Program) -> None:
            run = busy[program] = waiting.popleft()
            task = {"config": asdict(run.config), "pause_at": (pause_at or {}).get(run.name)}
            program.send(json.dumps(task, default=str))

        with handle_signals(_interrupt, signal.SIGTERM):
            try:
                while waiting or busy:
                    while waiting and len(busy) < self.jobs:
                        start_next(self.start_program(self.threads))
                    self.display.update(list(busy.values()))
                    time.sleep(_POLL_SECONDS)
                    for program, run in list(busy.items()):
                        if not self._has_ended(program, run, waiting):
                            continue
                        if waiting and program.is_alive:
                            start_next(program)
                        else:
                            del busy[program]
                            program.close()
            finally:
                for program in busy:
                    program.stop()
                for program in busy:
                    program.close()

    def _has_ended(self, program: Program, run: PlannedRun, waiting: deque[PlannedRun]) -> bool:
        try:
            line = program.answer()
        except NodeDiedError as error:
            say(f"{run.name}: {error}; it resumes elsewhere")
            time.sleep(_SECONDS_AFTER_LOSS)
            waiting.append(run)
            return True
        if line is None:
            return False
        if problem := _find_problem(line):
            self.problems.append(f"{run.name}: {problem}")
        self.display.add_ended(run, problem or None)
        return True


def _find_problem(line: str) -> str:
    """Say what went wrong according to a worker's answer, "" if nothing did."""
    if not line:
        return "its process died"
    answer = json.loads(line)
    code, error = answer["code"], answer["error"]
    if code < 0:
        return f"killed by {signal.Signals(-code).name}, perhaps out of memory"
    return str(error) or (f"exit code {code}" if code else "")


def _interrupt(number: int, frame: object) -> None:
    """Raise KeyboardInterrupt for SIGTERM too: the runs are stopped on the way out."""
    raise KeyboardInterrupt
