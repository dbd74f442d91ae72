"""The training loop: steps, validation, samples and checkpoints, until the plan is done.

What a step does is in `step.py`, what is shown of it in `report.py`. The trainer decides what
happens when: validation, samples, checkpoints, going back to one, stopping.
"""

from __future__ import annotations

import dataclasses
import math
import signal
from time import perf_counter
from typing import Any

from trafo.checkpoint.bundle import describe_model, refuse_other_class
from trafo.checkpoint.store import CheckpointStore
from trafo.config import to_tree
from trafo.errors import InputError, StorageError, TrafoError
from trafo.runtime.process import Interruption, catch_interruptions
from trafo.runtime.sizes import parse_duration
from trafo.training.machine import dtype_of, peak_of
from trafo.training.metrics import Record
from trafo.training.plan import Clock, Plan, time_to_train
from trafo.training.report import Listen, Listener, Reporter
from trafo.training.run import Run, TrainerState
from trafo.training.step import StepResult, Training

_SEEDS_APART = 1_000_003


class Trainer:
    """One session of a run: with a plan, from the start; without, from the newest checkpoint."""

    def __init__(
        self,
        training: Training,
        run: Run,
        clock: Clock,
        plan: Plan | None = None,
        listen: Listen = Reporter,
    ) -> None:
        self.training = training
        self.config = training.config
        self.ranks = training.ranks
        self.run = run
        self.clock = clock
        keep = max(self.config.checkpoint.keep, self.config.checkpoint.average)
        self.store = CheckpointStore(run.checkpoint_folder, keep)
        self.listener = listen(run, self.config) if self.ranks.is_first else Listener()
        self._saved_step: int | None = None
        self._is_unsaved = False
        self._validated_step: int | None = None
        self._peak_flops = self.config.machine.peak_flops or math.inf
        if plan is not None:
            self.state = TrainerState(plan=plan)
        else:
            self.state = self._load_newest()
            clock.resume(self.state.seconds)

    def fit(self) -> signal.Signals | None:
        """Train to the end of the plan; returns the signal that stopped it early, if any."""
        if self._saved_step is None:
            self.save()  # from here on there is always a checkpoint to go back to
            if self.ranks.is_first:
                try:
                    self.run.mark_latest()
                except StorageError as error:
                    self.listener.note(f"{error}")
        if self.config.machine.peak_flops is None and self.ranks.is_first:
            with self.training.threads.all_of_them():
                peak = peak_of(self.training.device, dtype_of(self.config.machine))
                self._peak_flops = peak.flops * self.ranks.world
        left = None if self.config.budget is None else self._seconds_left()
        with catch_interruptions() as interruption, self.listener.listening(self.state, left):
            self.clock.begin_steps()
            while self.state.step < self.state.plan.steps:
                self.advance()
                if self._is_interrupted(interruption):
                    break
        if interruption.signal is not None:
            self._leave(interruption.signal)
        elif self.config.checkpoint.average > 1 and self.ranks.is_first:
            self._average()
        self.state.seconds = self.clock.seconds
        return interruption.signal

    def _average(self) -> None:
        """The mean of the newest checkpoints; a short run may have fewer than asked for."""
        trained = [step for step in self.store.steps() if step]
        steps = self.store.save_average(min(self.config.checkpoint.average, len(trained)))
        self.listener.note(f"averaged the checkpoints of steps {', '.join(map(str, steps))}")

    def advance(self) -> None:
        """One step and what is due after it; back to a checkpoint if the loss is not finite."""
        state, watch = self.state, self.config.watch
        is_logged = state.step == 0 or state.plan.is_due(watch.log_every, state.step + 1)
        is_warm = not self.training.threads.is_trying
        factor, begun = self._rate_factor(), perf_counter()
        result = self.training.step(
            state.step, seed=self._seed(), rate_factor=factor, norms=watch.norms and is_logged
        )
        if not result.is_sound:
            self._go_back(result)
            return
        self.clock.add_step(perf_counter() - begun, is_warm=is_warm)
        state.step += 1
        state.tokens += result.num_targets
        state.records += is_logged
        self.listener.step(
            self._record(result, factor * self.config.optimizer.lr),
            steps=state.plan.steps,
            seconds_left=self._seconds_left(),
            is_logged=is_logged,
        )
        self._do_what_is_due()

    def _seconds_left(self) -> float:
        """By the budget if there is one; else by what steps have cost in this session."""
        steps = self.state.plan.steps - self.state.step
        if self.config.budget is None or not steps:
            return steps * self.clock.seconds_per_step
        return max(0.0, parse_duration(self.config.budget) - self.clock.seconds)

    def _do_what_is_due(self) -> None:
        state = self.state
        if state.plan.is_validation_due(self.config, state.step):
            self._validate()
        if self.config.budget is not None and state.plan.is_due(
            state.plan.correct_every, state.step
        ):
            self._correct_plan(time_to_train(self.config.budget))
        if state.plan.is_due(state.plan.sample_every, state.step):
            self._sample()
        if state.plan.is_due(state.plan.checkpoint_every, state.step):
            self._save_or_go_on()

    def _record(self, result: StepResult, lr: float) -> Record:
        seconds = self.clock.step_seconds
        flops = self.training.task.flops_per_step
        return {
            "step": self.state.step,
            "kind": "train",
            "loss": result.loss,
            "lr": lr,
            "grad_norm": result.grad_norm,
            "batch": result.batch,
            "total_tokens": self.state.tokens,
            "tokens_per_second": result.num_targets / seconds,
            "utilisation": flops / seconds / self._peak_flops,
            "seconds": self.clock.seconds,
            **result.norms,
        }

    def _rate_factor(self) -> float:
        """What the learning rates of the coming step are multiplied by."""
        schedule, d_model = self.config.optimizer.schedule, self.config.model_config.d_model
        return schedule.factor(self.state.step, self.state.plan.steps, d_model)

    def _seed(self) -> int:
        """After going back to a checkpoint, other batches and other dropout than before."""
        return (self.config.seed + _SEEDS_APART * self.state.attempt) % 2**32

    def _validate(self) -> None:
        state = self.state
        num_tokens = state.plan.evaluate_tokens
        found = self._measure(num_tokens)
        self._report("validation", found)
        state.validation_loss = self.ranks.agree(found["loss"])
        self._validated_step = state.step
        self._stop_early(-found["bleu"] if "bleu" in found else found["loss"])
        # More exact, and apart from the others: losses on other tokens do not compare.
        if state.step == state.plan.steps and self.config.watch.evaluate_tokens is None:
            more = state.plan.final_tokens(self.config, self.training.task)
            self._report("final", found if more == num_tokens else self._measure(more))

    def _measure(self, num_tokens: int) -> Record:
        """Metrics on held-out data; only the first rank has them."""
        model = self.training.whole_model()
        return {"loss": 0.0} if model is None else self.training.task.validate(model, num_tokens)

    def _report(self, kind: str, found: Record) -> None:
        self.state.records += 1
        about = {"step": self.state.step, "kind": kind, "total_tokens": self.state.tokens}
        self.listener.validation(about | found | {"seconds": self.clock.seconds})

    def _stop_early(self, metric: float) -> None:
        """Early stopping: end the plan here after `patience` validations without improvement."""
        state, patience = self.state, self.config.watch.patience
        metric = self.ranks.agree(metric)
        is_better = state.best_metric is None or metric < state.best_metric
        state.best_metric = metric if is_better else state.best_metric
        state.stale_validations = 0 if is_better else state.stale_validations + 1
        if patience is not None and state.stale_validations >= patience:
            if state.step < state.plan.steps:
                self.listener.note(f"early stopping: no better for {patience} validations")
            state.plan = dataclasses.replace(state.plan, steps=state.step)

    def _sample(self) -> None:
        model = self.training.whole_model()
        if model is None:
            return
        try:
            text = self.training.task.sample(model)
        except TrafoError as error:
            self.listener.note(f"no sample: {error}")
        else:
            self.listener.sample(self.state.step, text)

    def _correct_plan(self, seconds: float) -> None:
        """As many steps as still fit, from what they have cost in this session."""
        state = self.state
        if state.step < state.plan.steps:
            left = seconds - self.clock.seconds
            corrected = state.plan.corrected(
                self.config, self.training.task, state.step, left, self.clock.seconds_per_step
            )
            steps = round(self.ranks.agree(float(corrected.steps)))
            state.plan = dataclasses.replace(corrected, steps=steps)

    def save(self) -> None:
        """Write a checkpoint."""
        state = self.state
        state.seconds = self.clock.seconds
        # Only weights that were measured themselves can be the best.
        measured = state.validation_loss if self._validated_step == state.step else None
        loss = math.inf if measured is None else measured
        is_best = loss < state.best_loss
        state.best_loss = min(state.best_loss, loss)
        snapshot = self.training.snapshot()
        if self.ranks.is_first:
            self.store.save(
                state.step,
                snapshot,
                state.to_json()
                | {"data": self.training.task.fingerprint(), "config": to_tree(self.config)},
                describe_model(self.training.model, self.config.model_config),
                is_best=is_best,
            )
        self._saved_step = state.step

    def _save_or_go_on(self) -> None:
        """Save; on a full disk, continue without the checkpoint. At the end that is an error."""
        step, best_loss = self.state.step, self.state.best_loss
        try:
            self.save()
        except StorageError as error:
            if step >= self.state.plan.steps:
                raise
            self.state.best_loss = best_loss
            if not self._is_unsaved:
                self.listener.note(f"{error}")
                saved = self._what_is_saved()
                self.listener.note(f"not saved at step {step}; {saved}, training continues")
            self._is_unsaved = True
        else:
            if self._is_unsaved:
                self.listener.note(f"saved again, at step {step}")
            self._is_unsaved = False

    def _load_newest(self) -> TrainerState:
        """Load the newest intact checkpoint; the config may ask for more steps than before."""
        checkpoint = self.store.newest()
        path = self.store.path(checkpoint.step)
        refuse_other_class(checkpoint.model, self.training.model, path)
        checkpoint.state.pop("config", None)
        _refuse_other_data(checkpoint.state.pop("data", None), self.training.task.fingerprint())
        self.training.restore(checkpoint.snapshot)
        state = TrainerState.from_json(checkpoint.state)
        num_tokens, steps = state.plan.evaluate_tokens, state.plan.steps
        state.plan = state.plan.resumed(self.config, self.training.task, state.step, state.seconds)
        if state.plan.steps != steps:
            self.listener.note(
                f"the learning rate follows the schedule of {state.plan.steps:,} steps from here, "
                f"instead of {steps:,}"
            )
        if state.plan.evaluate_tokens != num_tokens:
            state.best_loss, state.best_metric = math.inf, None
            self.listener.note("the validation set has changed: the best checkpoint is reset")
        self._saved_step = state.step
        return state

    def _go_back(self, result: StepResult) -> None:
        """Back to the last checkpoint after a loss that is not finite; the second time, stop."""
        step, attempt = self.state.step, self.state.attempt
        self.listener.diverged(step + 1)
        what = f"step {step + 1}: loss {result.loss:.4g}, gradient norm {result.grad_norm:.4g}"
        if attempt:
            raise InputError(
                f"{what}, for the second time",
                hint=f"stopped; {self._what_is_saved()}. Try a lower optimizer.lr",
            )
        self.state = self._load_newest()
        self.state.attempt = attempt + 1
        self.listener.went_back(self.state.step)
        self.listener.note(f"{what}; back to step {self.state.step}, with other batches from there")

    def _is_interrupted(self, interruption: Interruption) -> bool:
        """On every rank, if on any."""
        number = self.ranks.largest(int(interruption.signal or 0))
        if number and interruption.signal is None:
            interruption.note(number)
        return interruption.signal is not None

    def _leave(self, number: signal.Signals) -> None:
        step = self.state.step
        if self._saved_step != step:
            self.save()
        resume = f"trafo resume {self.run.path}"
        self.listener.note(f"{number.name}: saved at step {step}; continue with `{resume}`")

    def _what_is_saved(self) -> str:
        return f"the checkpoint of step {self._saved_step} stays"


def _refuse_other_data(had: Any, data: dict[str, Any]) -> None:
    for name, value in data.items():
        if not isinstance(had, dict) or had.get(name) != value:
            raise InputError(
                f"the data is not what this run was trained on: another {name}",
                hint="restore the data, or start a new run",
            )
