"""Run an experiment: plan, check, train, report."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from trafo.errors import TrafoError, require
from trafo.experiments.execute import Executor, prepare_data, refuse_other_runs
from trafo.experiments.extrapolate import Extrapolation, check_grid, finished
from trafo.experiments.halving import make_with_halving
from trafo.experiments.live import Watch
from trafo.experiments.plan import PlannedRun, plan_runs
from trafo.experiments.program import LocalProgram, Program, programs_on
from trafo.experiments.report.content import Block
from trafo.experiments.report.write import write_report
from trafo.experiments.result import read_result
from trafo.experiments.spec import Experiment, Halving
from trafo.experiments.summary import Summary, records, summarize
from trafo.runtime.atomic import LOCK, lock_folder, storage_errors
from trafo.runtime.machine import available_memory
from trafo.runtime.sizes import format_size
from trafo.training.config import TrainConfig
from trafo.training.fit_memory import needed_bytes
from trafo.training.machine import device_of

_PROGRAM = 400_000_000  # bytes that Python and torch take in every process


@dataclass(frozen=True)
class Share:
    """How the machine is shared: runs at a time, and CPU threads of each."""

    jobs: int
    threads: int


def share_machine(
    runs: Sequence[PlannedRun], jobs: int | None = None, threads: int | None = None
) -> Share:
    """One run per core, unless memory is short or there is a GPU.

    Independent runs never wait for each other; the threads of one run do at every product, so each
    run has its own cores.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = cores or 1
    configs = [run.config for run in runs]
    if jobs is None:
        on_cpu = all(device_of(c.machine) == "cpu" for c in configs)
        most = max(1, cores // (threads or 1))
        jobs = min(most, len(runs), _that_fit(configs)) if on_cpu else 1
    return Share(jobs, threads or max(1, cores // jobs))


def share_cluster(
    runs: Sequence[PlannedRun], cpus: int, jobs: int | None = None, threads: int | None = None
) -> Share:
    """One run per CPU of the cluster, unless the number of runs at a time was asked for.

    With fewer runs, each gets as many threads as the CPUs allow, all on one node.
    """
    if jobs is None:
        return Share(min(max(1, cpus // (threads or 1)), len(runs)), threads or 1)
    return Share(min(jobs, cpus), threads or max(1, cpus // jobs))


def _that_fit(configs: Sequence[TrainConfig]) -> int:
    """Runs at a time that memory has room for; an error if not even one."""
    free = available_memory()
    distinct = dict.fromkeys(replace(config, seed=0, out=None) for config in configs)
    peak, config = max(((needed_bytes(c), c) for c in distinct), key=lambda pair: pair[0])
    what = f"a run needs {format_size(peak + _PROGRAM)} of memory, {format_size(free)} are free"
    require(peak + _PROGRAM <= free, what, f"its batch_size is {config.batch_size}")
    return max(1, int(free / (peak + _PROGRAM)))


def pinned(runs: Sequence[PlannedRun], threads: int) -> list[PlannedRun]:
    """With the number of threads in the config, unless it has one already."""

    def pin(config: TrainConfig) -> TrainConfig:
        number = config.machine.threads or threads
        return replace(config, machine=replace(config.machine, threads=number))

    return [replace(run, config=pin(run.config)) for run in runs]


def _make(
    runs: Sequence[PlannedRun],
    halving: Halving | None,
    folder: Path,
    jobs: int | None,
    threads: int | None,
    on: str | None,
) -> list[PlannedRun]:
    """Train those that are not done; returns all of them, with their threads."""
    start_program: Callable[[int], Program] = LocalProgram
    with ExitStack() as stack:
        if on is None:
            share = share_machine(runs, jobs, threads)
        else:
            cpus, start_program = stack.enter_context(programs_on(on, folder / LOCK))
            share = share_cluster(runs, cpus, jobs, threads)
        runs = pinned(runs, share.threads)
        watch = Watch(runs)
        executor = Executor(share.jobs, share.threads, watch, start_program)
        stack.enter_context(watch.shown())
        if halving is None:
            executor.make(runs)
        else:
            make_with_halving(executor, runs, halving)
    if problems := executor.problems:
        raise TrafoError("\n".join([f"{len(problems)} of the runs failed:", *problems]))
    return runs


@dataclass(frozen=True)
class Findings:
    """The runs of an experiment, what they show, and the folder with the report."""

    folder: Path
    runs: list[PlannedRun]
    summary: Summary
    extra: list[Block] = field(default_factory=list)
    """the part of the report on the scaling law"""

    @property
    def records(self) -> list[dict[str, Any]]:
        """One row for each run: `pandas.DataFrame(findings.records)`; also in results.csv."""
        return records(self.runs)

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
    refuse_other_runs(runs)
    prepare_data(runs)
    with storage_errors(folder, "making the folder"):
        folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder):
        runs = _make(runs, experiment.halving, folder, jobs, threads, on)
        summary = summarize(experiment, runs)
        blocks: list[Block] = []
        if experiment.scaling is not None:
            law = Extrapolation(experiment.scaling, finished(runs))
            larger = law.larger(folder)
            refuse_other_runs([larger])
            (larger,) = _make([larger], None, folder, jobs, threads, on)
            blocks = law.blocks(larger, read_result(larger.folder))
            runs = [*runs, larger]
        write_report(summary, runs, folder, blocks)
    return Findings(folder, runs, summary, blocks)
