"""The loop: step after step, with a look at the model now and then, until the plan is done.

What a step does is in `step.py`, what is written where in `reporter.py`. Here is decided what
happens when: validation, samples, checkpoints, going back, leaving.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter
from types import FrameType

from trafo.checkpoint.bundle import describe_model
from trafo.checkpoint.snapshot import restore, take
from trafo.checkpoint.store import CheckpointStore
from trafo.errors import InputError, StorageError
from trafo.runtime.console import say
from trafo.train.build import Training
from trafo.train.plan import time_to_train
from trafo.train.report import Reporter
from trafo.train.run import RunFolder, State, check_same_data
from trafo.train.step import StepResult
from trafo.train.validation import validate

DONE = 0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Whether somebody wants this to end."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def __bool__(self) -> bool:
        return self.signal is not None

    @property
    def exit_code(self) -> int:
        """As a shell reports a program that a signal has ended: 130 or 143."""
        assert self.signal is not None
        return 128 + int(self.signal)

    def note(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)


@contextmanager
def interruptions() -> Iterator[Interruption]:
    """Take note of signals within the block, and handle them as before after it."""
    interruption = Interruption()
    try:
        before = {number: signal.signal(number, interruption.note) for number in _SIGNALS}
    except ValueError:  # not in the main thread, which is the only one that may
        yield interruption
        return
    try:
        yield interruption
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class Trainer:
    """One session of a run, from its beginning or from a checkpoint."""

    def __init__(self, training: Training, folder: RunFolder, state: State, started: float) -> None:
        self.training = training
        self.config = training.config
        self.ranks = training.ranks
        self.folder = folder
        self.state = state
        self.store = CheckpointStore(folder.checkpoints, training.config.checkpoint.keep)
        self._saved_step: int | None = None
        self._measured_step: int | None = None
        self._seconds_before = state.seconds
        self._started = started

    @property
    def seconds(self) -> float:
        """Wall-clock of the run so far, earlier sessions included."""
        return self._seconds_before + perf_counter() - self._started

    def fit(self) -> int:
        """Train to the end of the plan, or until interrupted; returns the exit code."""
        if self._saved_step is None and self.state.step == 0:
            self.save()  # from here on there is always a checkpoint to go back to
        self._follow_attempt()
        with interruptions() as interruption, Reporter(self) as reporter:
            while self.state.step < self.state.plan.steps:
                if not self._advance(reporter):
                    continue
                if self._is_interrupted(interruption):
                    break
        if interruption:
            return self._leave(interruption)
        return DONE

    def _advance(self, reporter: Reporter) -> bool:
        """One step and what is due after it; False if the training had to go back instead."""
        state, plan = self.state, self.state.plan
        begun = perf_counter()
        factor = self.rate_factor
        result = self.training.stepper.run(state.step, factor)
        if not result.is_sound:
            self._go_back(result)
            reporter.reopen()
            return False
        state.step += 1
        reporter.step(result, factor, perf_counter() - begun)
        if plan.is_due(plan.evaluate_every, state.step):
            self._evaluate(reporter)
        if self.config.budget is not None and plan.is_due(plan.correct_every, state.step):
            self._correct_plan(time_to_train(self.config.budget), reporter.seconds_per_step)
        plan = state.plan
        if plan.is_due(plan.sample_every, state.step):
            reporter.sample()
        if plan.is_due(plan.checkpoint_every, state.step):
            self._save_or_go_on(reporter)
        return True

    @property
    def rate_factor(self) -> float:
        """What the learning rates of the coming step are multiplied by."""
        schedule = self.config.optimizer.schedule
        return schedule.factor(self.state.step, self.state.plan.steps, self.config.lm.d_model)

    def _evaluate(self, reporter: Reporter) -> None:
        is_last = self.state.step == self.state.plan.steps
        loss, evaluation = validate(self.training, self.state.plan, is_last=is_last)
        self.state.validation_loss = loss
        self._measured_step = self.state.step
        if evaluation is not None:
            reporter.validation(evaluation)

    def _correct_plan(self, seconds: float, seconds_per_step: float) -> None:
        """As many steps as still fit, from what they have cost in this session."""
        state = self.state
        if state.step < state.plan.steps:
            corrected = state.plan.corrected(state.step, seconds - self.seconds, seconds_per_step)
            steps = round(self.ranks.agree(float(corrected.steps)))
            state.plan = dataclasses.replace(corrected, steps=steps)

    def save(self) -> None:
        """Write a checkpoint of this moment."""
        self.state.seconds = self.seconds
        is_best = self._is_best()
        if is_best:
            self.state.best_loss = self.state.validation_loss or 0.0
        snapshot = take(self.training.model, self.training.optimizers)
        if self.ranks.is_first:
            self.store.save(
                self.state.step,
                snapshot,
                self.state.to_json(self.training.dataset),
                describe_model(self.config.lm),
                is_best=is_best,
            )
        self._saved_step = self.state.step

    def _is_best(self) -> bool:
        """Whether these very weights were measured, and are better than all that were saved."""
        loss = self.state.validation_loss
        if loss is None or self._measured_step != self.state.step:
            return False
        return loss < self.state.best_loss

    def _save_or_go_on(self, reporter: Reporter) -> None:
        """A full disk is no reason to lose what is in memory; at the end it is an error."""
        try:
            self.save()
        except StorageError as error:
            if self.state.step >= self.state.plan.steps:
                raise
            say(f"{error}")
            say(f"not saved at step {self.state.step}; {self._what_is_saved()}, training goes on")

    def continue_from_newest(self) -> None:
        """Begin this session where an earlier one left off; its time counts as well."""
        self._load_newest()
        self._seconds_before = self.state.seconds

    def _load_newest(self) -> None:
        """Go to the newest sound checkpoint."""
        checkpoint = self.store.newest()
        check_same_data(checkpoint.state["data"], self.training.dataset)
        restore(checkpoint.snapshot, self.training.model, self.training.optimizers)
        self.state = State.from_json(checkpoint.state)
        self._saved_step = self.state.step

    def _go_back(self, result: StepResult) -> None:
        """To the last checkpoint after a loss that is no number; the second time, stop."""
        step, attempt = self.state.step, self.state.attempt
        what = f"step {step + 1}: loss {result.loss:.4g}, gradient norm {result.grad_norm:.4g}"
        if attempt:
            raise InputError(
                f"{what}, for the second time",
                hint=f"stopped; {self._what_is_saved()}. Try a lower optimizer.lr",
            )
        self._load_newest()
        self.state.attempt = attempt + 1
        self._follow_attempt()
        if self.ranks.is_first:
            say(f"{what}; back to step {self.state.step}, going on with other batches")

    def _follow_attempt(self) -> None:
        """Other batches and other dropout than the ones that led to nowhere."""
        stepper = self.training.stepper
        seed = (self.config.seed + 1_000_003 * self.state.attempt) % 2**32
        stepper.sampler = dataclasses.replace(stepper.sampler, seed=seed)

    def _is_interrupted(self, interruption: Interruption) -> bool:
        """On every rank, if on any."""
        if self.ranks.world == 1:
            return bool(interruption)
        number = self.ranks.largest(int(interruption.signal or 0))
        if number and not interruption:
            interruption.note(number, None)
        return bool(interruption)

    def _leave(self, interruption: Interruption) -> int:
        if self._saved_step != self.state.step:
            self.save()
        assert interruption.signal is not None
        if self.ranks.is_first:
            say(
                f"{interruption.signal.name}: saved at step {self.state.step}; "
                f"go on with `trafo resume {self.folder.path}`"
            )
        return interruption.exit_code

    def _what_is_saved(self) -> str:
        if self._saved_step is None:
            return "there is no checkpoint"
        return f"the checkpoint of step {self._saved_step} stays"
