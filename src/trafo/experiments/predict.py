"""What runs will take: time from a few real steps, memory from the accounting."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch

from trafo.account.workload import train_step
from trafo.experiments.plan import PlannedRun, tokens_per_step
from trafo.fast import accelerate
from trafo.models import build_model
from trafo.optim.config import OptimizerConfig, build_optimizers
from trafo.runtime.progress import progress
from trafo.runtime.sizes import parse_duration
from trafo.training.config import TrainConfig
from trafo.training.fit_memory import micro_batch, needed_bytes
from trafo.training.plan import forward_cost

_START = 4.0  # seconds: Python, torch, data
_TRIAL_SECONDS, _MOST_TRIALS = 0.5, 10

_SIZE_SETTINGS = ("batch_size", "accumulate", "context_length", "translation", "machine")
_MODEL_SETTINGS = ("architecture", "model", "gpt2", "encoder_decoder", "recurrent")


@dataclass(frozen=True)
class Prediction:
    """Predicted cost of one run."""

    seconds: float
    memory: int
    """peak memory in bytes, without that of the program itself"""


def predict(runs: Sequence[PlannedRun], threads: int) -> dict[str, Prediction]:
    """By the name of each run; a few steps of each kind are timed, on random tokens."""
    by_kind: dict[TrainConfig, tuple[float, int]] = {}
    kinds = {run.name: _kind(run.config) for run in runs}
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        distinct = list(dict.fromkeys(kinds.values()))
        with progress("timing steps", total=len(distinct), unit="arms") as bar:
            for config in distinct:
                by_kind[config] = _seconds_per_step(config), needed_bytes(config)
                bar.advance()
    finally:
        torch.set_num_threads(before)
    return {run.name: _prediction(run.config, *by_kind[kinds[run.name]]) for run in runs}


def total_seconds(seconds: Sequence[float], jobs: int) -> float:
    """Time until all are done, `jobs` at a time, each started when another ends."""
    ends = [0.0] * max(1, jobs)
    heapq.heapify(ends)
    for each in seconds:
        heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def _kind(config: TrainConfig) -> TrainConfig:
    """The settings that determine the cost of a step."""
    settings = {name: getattr(config, name) for name in (*_SIZE_SETTINGS, *_MODEL_SETTINGS)}
    return TrainConfig(**settings, optimizer=OptimizerConfig(name=config.optimizer.name))


def _prediction(config: TrainConfig, per_step: float, peak: int) -> Prediction:
    if config.budget is not None:
        return Prediction(_START + parse_duration(config.budget), peak)
    validations = config.steps // (config.watch.evaluate_every or config.steps)
    measured = validations * (config.watch.evaluate_tokens or 0) / tokens_per_step(config)
    return Prediction(_START + per_step * (config.steps + forward_cost(config) * measured), peak)


def _seconds_per_step(config: TrainConfig) -> float:
    """The fastest of a few: the others were disturbed."""
    work = micro_batch(config)
    model: Any = build_model(config.model_config)
    if config.machine.fast:
        accelerate(model)
    optimizers = build_optimizers(model.train(), config.optimizer)
    times: list[float] = []
    end = perf_counter() + _TRIAL_SECONDS
    while len(times) < 2 or (perf_counter() < end and len(times) < _MOST_TRIALS):
        start = perf_counter()
        train_step(model, optimizers, work)
        times.append(perf_counter() - start)
    return config.accumulate * min(times)
