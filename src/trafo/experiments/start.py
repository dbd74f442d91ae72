"""Run an experiment: plan, check, train, report."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import yaml

from trafo.config import to_yaml
from trafo.errors import StorageError, TrafoError
from trafo.experiments.cost import share_cluster, share_machine
from trafo.experiments.execute import (
    Executor,
    LiveTable,
    Program,
    connect_cluster,
    start_local_program,
)
from trafo.experiments.plan import PlannedRun, plan_runs, tokens_per_step
from trafo.experiments.report import Section, write_report
from trafo.experiments.results import (
    RunResult,
    Summary,
    list_records,
    measure,
    read_result,
    summarize,
)
from trafo.experiments.scaling import Extrapolation, check_grid
from trafo.experiments.spec import Experiment, Halving, Problems
from trafo.runtime.atomic import LOCK, lock_folder, storage_errors
from trafo.training.build import make_task
from trafo.training.config import TrainConfig
from trafo.training.distributed import ranks
from trafo.training.run import Run
from trafo.training.tasks.language import LanguageModelling, check_fit


@dataclass(frozen=True)
class Findings:
    """The runs of an experiment, what they show, and the folder with the report."""

    folder: Path
    runs: list[PlannedRun]
    summary: Summary
    extra: list[Section] = field(default_factory=list)
    """the part of the report on the scaling law"""

    @property
    def records(self) -> list[dict[str, Any]]:
        """One row for each run, as in results.csv: `pandas.DataFrame(findings.records)`."""
        return list_records(self.runs)

    def __repr__(self) -> str:
        return f"Findings({str(self.folder)!r}, {len(self.runs)} runs)"


def run_experiment(
    experiment: Experiment,
    folder: Path,
    jobs: int | None = None,
    *,
    threads: int | None = None,
    on: str | None = None,
) -> Findings:
    """Train the runs that are not done yet, here or `on` a cluster, and write the report.

    None: one run per core, the cores divided among them, on this machine.
    """
    runs = plan_runs(experiment, folder)
    if experiment.scaling is not None:
        check_grid(runs)
    check_unchanged(runs)
    prepare_data(runs)
    with storage_errors(folder, "making the folder"):
        folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        runs = _train(runs, experiment.halving, folder, jobs, threads, on)
        summary = summarize(experiment, runs)
        extra: list[Section] = []
        if experiment.scaling is not None:
            law = Extrapolation(experiment.scaling, runs)
            larger = law.plan_larger_run(folder)
            check_unchanged([larger])
            (larger,) = _train([larger], None, folder, jobs, threads, on)
            extra = [law.report(larger, read_result(larger.folder))]
            runs = [*runs, larger]
        write_report(summary, runs, folder, extra)
    return Findings(folder, runs, summary, extra)


def _train(
    runs: Sequence[PlannedRun],
    halving: Halving | None,
    folder: Path,
    jobs: int | None,
    threads: int | None,
    on: str | None,
) -> list[PlannedRun]:
    """Train the runs that are not done, and return all of them with their threads."""
    start_program: Callable[[int], Program] = start_local_program
    with ExitStack() as stack:
        if on is None:
            jobs, threads = share_machine(runs, jobs, threads)
        else:
            cpus, start_program = stack.enter_context(connect_cluster(on, folder / LOCK))
            jobs, threads = share_cluster(runs, cpus, jobs, threads)
        runs = [replace(run, config=_pin_threads(run.config, threads)) for run in runs]
        display = LiveTable(runs)
        executor = Executor(jobs, threads, display, start_program)
        stack.enter_context(display.show())
        if halving is None:
            executor.train(runs)
        else:
            train_with_halving(executor, runs, halving)
    if problems := executor.problems:
        raise TrafoError("\n".join([f"{len(problems)} of the runs failed:", *problems]))
    return runs


def _pin_threads(config: TrainConfig, threads: int) -> TrainConfig:
    machine = replace(config.machine, threads=config.machine.threads or threads)
    return replace(config, machine=machine)


def prepare_data(runs: Sequence[PlannedRun]) -> None:
    """Make tokenizers and token files once, and check that every run suits them."""
    problems = Problems()
    tasks: dict[object, object] = {}
    for run in runs:
        config = run.config
        key = _data_settings(config)
        with problems.collect(run.cell), ranks() as mine:
            if key not in tasks:
                tasks[key] = make_task(config, mine)
            task = tasks[key]
            if isinstance(task, LanguageModelling):
                check_fit(config, task.data, 1)
    problems.raise_if_any()


def _data_settings(config: TrainConfig) -> tuple[object, ...]:
    """Return the settings that determine tokenizer and token file."""
    sources = (config.text, config.pairs, config.validation, config.data)
    if config.translates:
        return (*sources, config.translation, config.model_config)
    return (*sources, config.language_model.vocab_size)


def check_unchanged(runs: Sequence[PlannedRun]) -> None:
    """Raise if a folder holds a run with other settings than those it should have now."""
    problems = Problems()
    for run in runs:
        file = Run(run.folder).config_file
        if not file.is_file():
            continue
        with problems.collect(run.name):
            stored = yaml.safe_load(file.read_text(encoding="utf-8"))
            key = _find_difference(stored, yaml.safe_load(to_yaml(run.config)))
            if key is not None:
                raise StorageError(
                    f"was started with a different {key}",
                    where=str(run.folder),
                    hint="choose another --out, or delete the folder",
                )
    problems.raise_if_any()


def _find_difference(
    stored: dict[str, Any], wanted: dict[str, Any], prefix: str = ""
) -> str | None:
    """Return the first key with different values, except those of the machine."""
    for name, value in wanted.items():
        key = prefix + name
        if name not in stored or key in ("machine", "out"):
            continue
        if isinstance(value, dict) and isinstance(stored[name], dict):
            if (inner := _find_difference(stored[name], value, f"{key}.")) is not None:
                return inner
        elif stored[name] != value:
            return key
    return None


def train_with_halving(executor: Executor, runs: Sequence[PlannedRun], halving: Halving) -> None:
    """Train by successive halving: all runs begin, and at each rung only the best continue.

    Jamieson and Talwalkar (2016). The learning rate follows the full number of steps, so a run that
    continues is the run it would have been without the pause. The best of the first arm always
    continues, because it is the reference.
    """
    active = list(runs)
    for fraction in halving.at:
        rungs = {run.name: step_of_rung(run, fraction) for run in active}
        executor.train([run for run in active if _last_step(run) < rungs[run.name]], rungs)
        if executor.problems:
            return  # without all losses nothing can be decided
        losses = {run.name: _loss_at(run, rungs[run.name]) for run in active}
        kept = pick_survivors(active, losses, halving.keep)
        for run in active:
            if run.cell not in kept and read_result(run.folder) is None:
                _stop(run, rungs[run.name])
        active = [run for run in active if run.cell in kept]
    executor.train(active)


def step_of_rung(run: PlannedRun, fraction: float) -> int:
    """Round a fraction of the steps to one after which there is a validation."""
    every = run.config.watch.evaluate_every or 1
    return every * max(1, round(fraction * run.config.steps / every))


def pick_survivors(runs: Sequence[PlannedRun], losses: dict[str, float], keep: float) -> set[str]:
    """Pick the cells with the lowest mean losses over seeds, and the best of the first arm."""
    by_cell: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        by_cell[run.cell].append(losses[run.name])
    order = sorted(by_cell, key=lambda cell: fmean(by_cell[cell]))
    first = {run.cell for run in runs if run.arm == runs[0].arm}
    best_of_first = next(cell for cell in order if cell in first)
    return {*order[: max(1, math.ceil(keep * len(order)))], best_of_first}


def _last_step(run: PlannedRun) -> int:
    return max((record["step"] for record in Run(run.folder).metrics), default=0)


def _loss_at(run: PlannedRun, step: int) -> float:
    """Return the newest validation loss up to a step, infinite if the run diverged before it."""
    result = read_result(run.folder)
    if result is not None and result.status == "diverged" and result.step <= step:
        return math.inf
    kinds = {str(r["kind"]): r for r in Run(run.folder).metrics if r["step"] <= step}
    newest = kinds.get("validation") or kinds.get("train")
    return math.inf if newest is None else float(newest["loss"])


def _stop(run: PlannedRun, step: int) -> None:
    found = measure([r for r in Run(run.folder).metrics if r["step"] <= step])
    tokens = step * tokens_per_step(run.config)
    RunResult(status="stopped", step=step, tokens=tokens, **found).save(run.folder)
