"""The plan of a run: number of steps, intervals, and how a time budget decides them.

A few steps are timed before a run with a budget begins, and the number of steps is corrected
repeatedly, from what they have taken so far. The learning rate follows the number of steps, so
its schedule is complete when the time is over.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from trafo.checkpoint.snapshot import Snapshot
from trafo.errors import require
from trafo.runtime.progress import progress
from trafo.runtime.sizes import format_duration, parse_duration
from trafo.training.config import TrainConfig
from trafo.training.machine import dtype_of
from trafo.training.step import Training
from trafo.training.tasks.task import Task

_VALIDATIONS, _SAMPLES, _CHECKPOINTS, _CORRECTIONS = 20, 4, 10, 50
# Of the training time: all validations together, and the final one where it is on more tokens.
_VALIDATION_SHARE, _FINAL_SHARE = 0.05, 0.02
# Of a training step, as measured: validation is in float32, so that its loss is the model's own.
_FORWARD_COST = {"float32": 0.4, "bfloat16": 0.8}
# A validation loss on this much text has a standard error of about 1 %: in TinyStories, losses of
# windows of 96 tokens differ by 0.5 nats. With fewer than the fewest it says next to nothing.
_ENOUGH_TOKENS, _ENOUGH_WINDOWS, _FEWEST_WINDOWS = 32_768, 128, 4
_WRONG_PLAN = 1.25  # times as many or as few steps as planned: the intervals change too
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
        self._num_warm = 0
        self._warming_seconds = 0.0
        self._fastest = math.inf
        self.step_seconds = 0.0
        """a running mean of the bare step, without validations and checkpoints"""

    @property
    def seconds(self) -> float:
        """Wall-clock time of the run so far."""
        return self._seconds_before + perf_counter() - self._started

    @property
    def seconds_per_step(self) -> float:
        """Mean time of a step in this session, with validations, samples and checkpoints."""
        if not self._num_warm:
            return 0.0 if math.isinf(self._fastest) else self._fastest
        return (perf_counter() - self._first_step - self._warming_seconds) / self._num_warm

    def resume(self, seconds: float) -> None:
        """Add the time of earlier sessions."""
        self._seconds_before = seconds

    def begin_steps(self) -> None:
        """Start timing steps."""
        self._first_step = perf_counter()

    def add_trial(self, seconds_per_step: float) -> None:
        """What a step took before the first one: until steps are warm, they are taken to be so."""
        self._fastest = seconds_per_step

    def add_step(self, seconds: float, *, is_warm: bool = True) -> None:
        """Count a step and its time; steps to come cost what warm ones do.

        The first one is never warm; others are not while numbers of threads are compared.
        """
        is_warm = is_warm and not math.isinf(self._fastest)
        self._fastest = min(self._fastest, seconds)
        if not is_warm:
            self._warming_seconds += seconds
        self._num_warm += is_warm
        if self._num_warm <= 1:
            self.step_seconds = seconds if is_warm else self._fastest
        elif is_warm:
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
        tokens = config.watch.evaluate_tokens
        if tokens is None:
            times = -(-steps // (config.watch.evaluate_every or steps))
            affordable = int(_VALIDATION_SHARE * _forward_tokens(config, steps, task) / times)
            enough = min(max(_ENOUGH_TOKENS, _ENOUGH_WINDOWS * task.window), task.num_held_out)
            tokens = min(max(affordable, _FEWEST_WINDOWS * task.window), enough)
        return cls(
            steps=steps,
            planned_steps=steps,
            evaluate_tokens=tokens,
            asked_steps=config.steps,
            asked_budget=config.budget,
            **_intervals(config, steps, task, tokens),
        )

    def resumed(self, config: TrainConfig, task: Task, step: int, seconds: float) -> Plan:
        """The plan of a run that resumes at `step`; steps change only if the config asks for it."""
        tokens = config.watch.evaluate_tokens or self.evaluate_tokens
        intervals = _intervals(config, self.planned_steps, task, tokens)
        plan = dataclasses.replace(self, evaluate_tokens=tokens, **intervals)
        if (config.steps, config.budget) == (self.asked_steps, self.asked_budget):
            return plan
        if config.budget is None:
            what = f"steps is {config.steps:,}, this run is already at step {step:,}"
            require(config.steps >= step, what, "give more steps to train for longer")
            plan = dataclasses.replace(plan, steps=config.steps)
        elif config.budget != self.asked_budget:
            left = time_to_train(config.budget) - seconds
            plan = plan.corrected(config, task, step, left, seconds / max(1, step))
        return dataclasses.replace(plan, asked_steps=config.steps, asked_budget=config.budget)

    def is_due(self, every: int, step: int) -> bool:
        """Whether something that happens every `every` steps is due after this step."""
        return every > 0 and (step % every == 0 or step == self.steps)

    def is_validation_due(self, config: TrainConfig, step: int) -> bool:
        """Whether to validate after this step; shortly before the end, the last one will do."""
        is_close = self.steps - self.evaluate_every / 2 < step < self.steps
        skips = is_close and config.watch.evaluate_every is None
        return self.is_due(self.evaluate_every, step) and not skips

    @property
    def correct_every(self) -> int:
        """Steps between two corrections of the number of steps."""
        return max(1, self.steps // _CORRECTIONS)

    def corrected(
        self,
        config: TrainConfig,
        task: Task,
        step: int,
        seconds_left: float,
        seconds_per_step: float,
    ) -> Plan:
        """The same plan with the steps that still fit; at least one more.

        Intervals stay, unless the steps were planned all wrong; before the first validation, its
        tokens change with them.
        """
        # What is measured after the last step takes the time of a few.
        at_the_end = {self.evaluate_tokens, self.final_tokens(config, task)}
        steps_at_the_end = sum(at_the_end) / _forward_tokens(config, 1, task)
        seconds_left -= seconds_per_step * steps_at_the_end
        steps = step + max(1, steps_that_fit(seconds_left, seconds_per_step))
        plan = dataclasses.replace(self, steps=steps)
        if 1 / _WRONG_PLAN < steps / self.planned_steps < _WRONG_PLAN:
            return plan
        if step < self.evaluate_every and step < self.steps:  # nothing to compare with yet
            return Plan.of(config, steps, task)
        intervals = _intervals(config, steps, task, self.evaluate_tokens)
        return dataclasses.replace(plan, planned_steps=steps, **intervals)

    def final_tokens(self, config: TrainConfig, task: Task) -> int:
        """Tokens of the final validation: all held-out ones, or as many as its time allows."""
        if config.watch.evaluate_tokens is not None:
            return self.evaluate_tokens
        affordable = int(_FINAL_SHARE * _forward_tokens(config, self.steps, task))
        return max(self.evaluate_tokens, min(task.num_held_out, affordable))


def forward_cost(config: TrainConfig) -> float:
    """Time to evaluate a batch, as a share of that of a training step."""
    return _FORWARD_COST[dtype_of(config.machine)]


def _forward_tokens(config: TrainConfig, steps: int, task: Task) -> float:
    """Held-out tokens that could be evaluated in the time of the training steps."""
    return steps * task.tokens_per_step / forward_cost(config)


def _intervals(config: TrainConfig, steps: int, task: Task, tokens: int) -> dict[str, Any]:
    """Steps between two validations on so many tokens, two samples and two checkpoints."""
    share = _VALIDATION_SHARE - (_FINAL_SHARE if tokens < task.num_held_out else 0)
    times = min(_VALIDATIONS, max(1, int(share * _forward_tokens(config, steps, task) / tokens)))
    every = config.watch.evaluate_every or -(-steps // times)
    samples = config.watch.sample_every
    # What has just been measured is saved, and can be called the best: one interval is a multiple
    # of the other. Checkpoints do not wait for rare validations.
    checkpoints = every * max(1, round(steps / _CHECKPOINTS / every))
    if (between := max(1, round(_CHECKPOINTS * every / steps))) > 1:
        checkpoints = -(-every // between)
        every = config.watch.evaluate_every or checkpoints * between
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
    clock.add_trial(per_step)
    left = training.ranks.agree(seconds - clock.seconds)
    steps = steps_that_fit(left, per_step)
    require(
        steps >= 1,
        f"budget is {config.budget}: {format_duration(max(left, 0))} are left after reading the "
        f"text, a step takes {format_duration(per_step)}",
        "give it more time, or make the model or the batch smaller",
    )
    return Plan.of(config, steps, task).corrected(config, task, 0, left, per_step)


def steps_that_fit(seconds: float, seconds_per_step: float) -> int:
    """Whole steps for this time."""
    return int(seconds / seconds_per_step)


def time_to_train(budget: str) -> float:
    """Seconds of a budget, without the reserve for the end."""
    return parse_duration(budget) * (1 - _RESERVE)


def try_steps(training: Training, budget: float) -> float:
    """Seconds per step, from a few in at most 2 % of the budget, which are then undone."""
    before = _copy(training.snapshot())
    # Every rank must take the same number of steps, whatever its clock says.
    fewest, most = (3, 3) if training.ranks.world > 1 else (2, _MOST_TRIALS)
    warming: list[float] = []
    warm: list[float] = []
    end = perf_counter() + min(_LONGEST_TRIAL, _TRIAL_SHARE * budget)
    with progress("trying steps", unit="steps") as bar:
        while bar.completed < fewest or (perf_counter() < end and len(warm) < most):
            # Slower than usual: the first step (memory, compiling), and other numbers of threads.
            is_warm = bar.completed > 0 and not training.threads.is_trying
            start = perf_counter()
            training.step(0, seed=training.config.seed, rate_factor=1.0)
            (warm if is_warm else warming).append(perf_counter() - start)
            bar.advance()
    training.restore(before)
    # The fastest number of threads is the one that will be used.
    return training.ranks.agree(median(warm) if warm else min(warming[1:]))


def _copy(snapshot: Snapshot) -> Snapshot:
    """Tensors that training does not change."""
    return dataclasses.replace(
        snapshot,
        weights={name: tensor.clone() for name, tensor in snapshot.weights.items()},
        moments={name: tensor.clone() for name, tensor in snapshot.moments.items()},
    )
