"""What runs will take, and how they share the machine.

Time is measured on a few real steps, memory follows from the accounting.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch

from trafo.account.workload import train_step
from trafo.errors import require
from trafo.experiments.plan import PlannedRun, tokens_per_step
from trafo.fast import accelerate
from trafo.models import build_model
from trafo.optim.config import OptimizerConfig, build_optimizers
from trafo.runtime.machine import available_memory
from trafo.runtime.progress import progress
from trafo.runtime.sizes import format_size, parse_duration
from trafo.training.config import TrainConfig
from trafo.training.fit_memory import micro_batch, needed_bytes
from trafo.training.machine import device_of
from trafo.training.plan import forward_cost

_START_SECONDS = 4.0  # Python, torch, data
_TRIAL_SECONDS, _MAX_TRIALS = 0.5, 10
_PROGRAM_BYTES = 400_000_000  # that Python and torch take in every process

_SIZE_SETTINGS = ("batch_size", "accumulate", "context_length", "translation", "machine")
_MODEL_SETTINGS = ("architecture", "model", "gpt2", "encoder_decoder", "recurrent")


@dataclass(frozen=True)
class Prediction:
    """Predicted cost of one run."""

    seconds: float
    memory: int
    """peak memory in bytes, without that of the program itself"""


def predict(runs: Sequence[PlannedRun], threads: int) -> dict[str, Prediction]:
    """Predict the cost of each run by its name: a few steps of each kind are timed."""
    by_kind: dict[TrainConfig, tuple[float, int]] = {}
    kinds = {run.name: _kind(run.config) for run in runs}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        distinct = list(dict.fromkeys(kinds.values()))
        with progress("timing steps", total=len(distinct), unit="arms") as bar:
            for config in distinct:
                by_kind[config] = _time_step(config), needed_bytes(config)
                bar.advance()
    finally:
        torch.set_num_threads(before)
    return {run.name: _prediction(run.config, *by_kind[kinds[run.name]]) for run in runs}


def total_seconds(seconds: Sequence[float], jobs: int) -> float:
    """Add up the time until all are done, `jobs` at a time, each started when another ends."""
    ends = [0.0] * max(1, jobs)
    heapq.heapify(ends)
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def _kind(config: TrainConfig) -> TrainConfig:
    """Keep the settings that determine the cost of a step."""
    settings = {name: getattr(config, name) for name in (*_SIZE_SETTINGS, *_MODEL_SETTINGS)}
    return TrainConfig(**settings, optimizer=OptimizerConfig(name=config.optimizer.name))


def _prediction(config: TrainConfig, per_step: float, peak: int) -> Prediction:
    if config.budget is not None:
        return Prediction(_START_SECONDS + parse_duration(config.budget), peak)
    validations = config.steps // (config.watch.evaluate_every or config.steps)
    measured = validations * (config.watch.evaluate_tokens or 0) / tokens_per_step(config)
    return Prediction(
        _START_SECONDS + per_step * (config.steps + forward_cost(config) * measured), peak
    )


def _time_step(config: TrainConfig) -> float:
    """Time a few steps and take the fastest: the others were disturbed."""
    work = micro_batch(config)
    model: Any = build_model(config.model_config)
    if config.machine.fast:
        accelerate(model)
    optimizers = build_optimizers(model.train(), config.optimizer)
    times: list[float] = []
    end = perf_counter() + _TRIAL_SECONDS
    while len(times) < 2 or (perf_counter() < end and len(times) < _MAX_TRIALS):
        start = perf_counter()
        train_step(model, optimizers, work)
        times.append(perf_counter() - start)
    return config.accumulate * min(times)


def share_machine(
    runs: Sequence[PlannedRun], jobs: int | None = None, threads: int | None = None
) -> tuple[int, int]:
    """Give each run a core, unless memory is short or there is a GPU.

    Returns how many run at a time, and the CPU threads of each. Independent runs never wait for
    each other, but the threads of one run do at every product, so each run has its own cores.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    cores = cores or 1
    configs = [run.config for run in runs]
    if jobs is None:
        is_on_cpu = all(device_of(c.machine) == "cpu" for c in configs)
        at_most = max(1, cores // (threads or 1))
        jobs = min(at_most, len(runs), _max_jobs_in_memory(configs)) if is_on_cpu else 1
    return jobs, threads or max(1, cores // jobs)


def share_cluster(
    runs: Sequence[PlannedRun], cpus: int, jobs: int | None = None, threads: int | None = None
) -> tuple[int, int]:
    """Give each run a CPU of the cluster, unless `jobs` says how many run at a time.

    With fewer runs, each gets as many threads as the CPUs allow, all on one node.
    """
    if jobs is None:
        return min(max(1, cpus // (threads or 1)), len(runs)), threads or 1
    return min(jobs, cpus), threads or max(1, cpus // jobs)


def _max_jobs_in_memory(configs: Sequence[TrainConfig]) -> int:
    """Count the runs that memory has room for at a time, and raise if not even one fits."""
    free = available_memory()
    distinct = dict.fromkeys(replace(config, seed=0, out=None) for config in configs)
    peak, config = max(((needed_bytes(c), c) for c in distinct), key=lambda pair: pair[0])
    what = (
        f"a run needs {format_size(peak + _PROGRAM_BYTES)} of memory, {format_size(free)} are free"
    )
    require(peak + _PROGRAM_BYTES <= free, what, f"its batch_size is {config.batch_size}")
    return max(1, int(free / (peak + _PROGRAM_BYTES)))
