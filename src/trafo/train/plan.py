"""The plan of a run: number of steps, intervals, and how a time budget decides them.

A few steps are timed before a run with a budget begins, and the number of steps is corrected
repeatedly, from what they have taken so far. The learning rate follows the number of steps, so
its schedule is complete when the time is over.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from trafo.checkpoint.snapshot import Snapshot
from trafo.errors import require
from trafo.runtime.progress import progress
from trafo.runtime.sizes import format_duration, parse_duration
from trafo.train.config import TrainConfig
from trafo.train.step import Training
from trafo.train.tasks.task import Task

_VALIDATIONS, _SAMPLES, _CHECKPOINTS, _CORRECTIONS = 20, 4, 10, 50
_VALIDATION_SHARE = 0.015
_FORWARD_COST = 1 / 3  # of a training step
_SMOOTHING = 20  # steps
# For the last validation, checkpoint and picture.
_RESERVE = 0.03
# Limits of trying steps: seconds, a share of the budget, steps.
_LONGEST_TRIAL, _TRIAL_SHARE, _MOST_TRIALS = 10.0, 0.02, 20


class Clock:
    """Wall-clock time of a run, earlier sessions included, and of the steps in this session."""

    def __init__(self) -> None:
        self._started = perf_counter()
        self._seconds_before = 0.0
        self._first_step = self._started
        self._num_steps = 0
        self.step_seconds = 0.0
        """a running mean of the bare step, without validations and checkpoints"""

    @property
    def seconds(self) -> float:
        """Wall-clock time of the run so far."""
        return self._seconds_before + perf_counter() - self._started

    @property
    def seconds_per_step(self) -> float:
        """Mean time of a step in this session, with validations, samples and checkpoints."""
        return (perf_counter() - self._first_step) / max(1, self._num_steps)

    def resume(self, seconds: float) -> None:
        """Add the time of earlier sessions."""
        self._seconds_before = seconds

    def begin_steps(self) -> None:
        """Start timing steps."""
        self._first_step = perf_counter()

    def add_step(self, seconds: float) -> None:
        """Count a step and its time."""
        self._num_steps += 1
        if self._num_steps <= 2:  # the first one warms up
            self.step_seconds = seconds
        else:
            self.step_seconds += (seconds - self.step_seconds) / _SMOOTHING


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The number of steps and the intervals; part of a checkpoint, kept when resuming."""

    steps: int
    planned_steps: int
    """steps planned at the start: intervals stay when a run is extended"""
    evaluate_every: int
    evaluate_tokens: int
    """never changes by itself: only losses on the same tokens compare"""
    sample_every: int
    checkpoint_every: int
    asked_steps: int
    asked_budget: str | None
    """what the config said when the number of steps was decided"""

    @classmethod
    def of(cls, config: TrainConfig, steps: int, task: Task) -> Plan:
        """The config's intervals; those it leaves open follow from the number of steps."""
        intervals = _intervals(config, steps)
        # Validation takes a small share of the time between two validations.
        trained = intervals["evaluate_every"] * task.tokens_per_step
        tokens = max(
            round(_VALIDATION_SHARE * trained / _FORWARD_COST), task.fewest_validation_tokens
        )
        return cls(
            steps=steps,
            planned_steps=steps,
            evaluate_tokens=config.watch.evaluate_tokens or tokens,
            asked_steps=config.steps,
            asked_budget=config.budget,
            **intervals,
        )

    def resumed(self, config: TrainConfig, step: int, seconds: float) -> Plan:
        """The plan of a run that resumes at `step`; steps change only if the config asks for it."""
        plan = dataclasses.replace(
            self,
            evaluate_tokens=config.watch.evaluate_tokens or self.evaluate_tokens,
            **_intervals(config, self.planned_steps),
        )
        if (config.steps, config.budget) == (self.asked_steps, self.asked_budget):
            return plan
        if config.budget is None:
            what = f"steps is {config.steps:,}, this run is already at step {step:,}"
            require(config.steps >= step, what, "give more steps to train for longer")
            plan = dataclasses.replace(plan, steps=config.steps)
        elif config.budget != self.asked_budget:
            left = time_to_train(config.budget) - seconds
            plan = plan.corrected(step, left, seconds / max(1, step))
        return dataclasses.replace(plan, asked_steps=config.steps, asked_budget=config.budget)

    def is_due(self, every: int, step: int) -> bool:
        """Whether something that happens every `every` steps is due after this step."""
        return every > 0 and (step % every == 0 or step == self.steps)

    @property
    def correct_every(self) -> int:
        """Steps between two corrections of the number of steps."""
        return max(1, self.steps // _CORRECTIONS)

    def corrected(self, step: int, seconds_left: float, seconds_per_step: float) -> Plan:
        """The same plan with the steps that still fit; at least one more."""
        fitting = steps_that_fit(seconds_left, seconds_per_step)
        return dataclasses.replace(self, steps=step + max(1, fitting))


def _intervals(config: TrainConfig, steps: int) -> dict[str, Any]:
    """Steps between two validations, samples and checkpoints."""
    every = config.watch.evaluate_every or max(1, steps // _VALIDATIONS)
    samples = config.watch.sample_every
    # A multiple: what is saved has just been measured, and can be called the best.
    checkpoints = every * max(1, round(steps / _CHECKPOINTS / every))
    return {
        "evaluate_every": every,
        "sample_every": max(1, steps // _SAMPLES) if samples is None else samples,
        "checkpoint_every": config.checkpoint.every or checkpoints,
    }


def make_plan(training: Training, clock: Clock) -> Plan:
    """The plan of a new run; with a budget, from timing a few steps."""
    config, task = training.config, training.task
    if config.budget is None:
        return Plan.of(config, config.steps, task)
    seconds = time_to_train(config.budget)
    per_step = try_steps(training, seconds)
    left = training.ranks.agree(seconds - clock.seconds)
    steps = steps_that_fit(left, per_step)
    require(
        steps >= 1,
        f"budget is {config.budget}: {format_duration(max(left, 0))} are left after reading the "
        f"text, a step takes {format_duration(per_step)}",
        "give it more time, or make the model or the batch smaller",
    )
    return Plan.of(config, steps, task)


def steps_that_fit(seconds: float, seconds_per_step: float) -> int:
    """Whole steps for this time."""
    return int(seconds / seconds_per_step)


def time_to_train(budget: str) -> float:
    """Seconds of a budget, without the reserve for the end."""
    return parse_duration(budget) * (1 - _RESERVE)


def try_steps(training: Training, budget: float) -> float:
    """Seconds per step: the median of a few in at most 2 % of the budget, which are then undone."""
    before = _copy(training.snapshot())
    # Every rank must take the same number of steps, whatever its clock says.
    fewest, most = (3, 3) if training.ranks.world > 1 else (2, _MOST_TRIALS)
    seconds: list[float] = []
    end = perf_counter() + min(_LONGEST_TRIAL, _TRIAL_SHARE * budget)
    with progress("trying steps", unit="steps") as bar:
        while len(seconds) < fewest or (perf_counter() < end and len(seconds) < most):
            start = perf_counter()
            training.step(0, seed=training.config.seed, rate_factor=1.0)
            seconds.append(perf_counter() - start)
            bar.advance()
    training.restore(before)
    # The first step is slower (memory, compiling): it does not count.
    return training.ranks.agree(median(seconds[1:]))


def _copy(snapshot: Snapshot) -> Snapshot:
    """Tensors that training does not change."""
    return dataclasses.replace(
        snapshot,
        weights={name: tensor.clone() for name, tensor in snapshot.weights.items()},
        moments={name: tensor.clone() for name, tensor in snapshot.moments.items()},
    )
