"""What is shown while an experiment runs: a table on a terminal, a line per run when piped."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import Any

from rich.console import Group
from rich.live import Live

from trafo.account import training_flops
from trafo.experiments.plan import PlannedRun, tokens_per_step
from trafo.experiments.result import read_result
from trafo.runtime.console import messages, plain_table, say
from trafo.runtime.json_text import parse_json
from trafo.runtime.sizes import format_duration, parse_duration
from trafo.training.config import TrainConfig
from trafo.training.run import Run

_TAIL = 4096  # bytes of metrics.jsonl that hold the last records
_MOST_ENDED = 8  # rows


class Watch:
    """Counts the work of all runs, done and left, and shows the runs themselves."""

    def __init__(self, runs: Sequence[PlannedRun]) -> None:
        self._runs = {run.name: run for run in runs}
        self._work = {run.name: _work(run.config) for run in runs}
        self._live: Live | None = None
        self._active: Sequence[PlannedRun] = ()
        self._done = {run.name for run in runs if read_result(run.folder) is not None}
        self._ended: deque[tuple[str, str]] = deque(maxlen=_MOST_ENDED)
        self._started = perf_counter()
        self._before = self._work_done()

    @contextmanager
    def shown(self) -> Iterator[None]:
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
        """Redraw."""
        self._active = active
        if self._live is not None:
            self._live.update(self._table())

    def ended(self, run: PlannedRun, problem: str | None) -> None:
        """Remember it; when piped, a line."""
        result = read_result(run.folder)
        if result is not None:
            self._done.add(run.name)
        what = problem or _outcome(run)
        self._ended.append((run.name, what))
        if self._live is None:
            say(f"{run.name}: {what}; {self._summary()}")

    def _summary(self) -> str:
        left = self.seconds_left()
        time = "" if left is None else f", {format_duration(left)} left"
        return f"{len(self._done)} of {len(self._runs)} runs done{time}"

    def seconds_left(self) -> float | None:
        """Estimated from the work done so far in this session; None before any."""
        done = self._work_done()
        if done <= self._before:
            return None
        rate = (done - self._before) / (perf_counter() - self._started)
        return max(0.0, (sum(self._work.values()) - done) / rate)

    def _work_done(self) -> float:
        finished = sum(self._work[name] for name in self._done)
        return finished + sum(self._work[run.name] * _share(run) for run in self._active)

    def _table(self) -> Group:
        table = plain_table("lrrl", ("arm", "seed", "step", "loss"))
        for name, what in self._ended:
            run = self._runs[name]
            table.add_row(run.cell, str(run.seed), "", what)
        for run in self._active:
            last = last_record(run)
            steps = "" if run.config.budget else f"/{run.config.steps:,}"
            loss = f"{last['loss']:.3f}" if "loss" in last else "starting"
            table.add_row(run.cell, str(run.seed), f"{last.get('step', 0):,}{steps}", loss)
        return Group(table, self._summary())


def last_record(run: PlannedRun) -> dict[str, Any]:
    """The newest training record of a run; empty if there is none."""
    path = Run(run.folder).metrics_file
    with suppress(OSError), path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        for line in reversed(file.read().splitlines()):
            with suppress(ValueError):
                record = parse_json(line)
                if isinstance(record, dict) and record.get("kind") == "train":
                    return record
    return {}


def _work(config: TrainConfig) -> float:
    """Work of a run, relative to the others."""
    if config.budget is not None:
        return parse_duration(config.budget)
    per_token = 1.0
    if not config.translates:
        per_token = training_flops(config.language_model, config.seq) / config.seq
    return config.steps * tokens_per_step(config) * per_token


def _share(run: PlannedRun) -> float:
    """How far a run is, from 0 to 1."""
    last = last_record(run)
    if run.config.budget is not None:
        return float(min(1.0, last.get("seconds", 0.0) / parse_duration(run.config.budget)))
    return float(min(1.0, last.get("step", 0) / run.config.steps))


def _outcome(run: PlannedRun) -> str:
    result = read_result(run.folder)
    if result is None:
        return f"paused at step {last_record(run).get('step', 0):,}"
    if result.status == "diverged":
        return f"diverged at step {result.step:,}"
    return f"loss {result.loss:.3f} after {result.step:,} steps, {format_duration(result.seconds)}"
