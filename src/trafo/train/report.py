"""What a person and their tools see of a training: the live line, files, boards, samples, curve."""

from __future__ import annotations

from contextlib import ExitStack
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

from trafo.account import Workload, account
from trafo.account.peak import measured_peak_flops
from trafo.errors import StorageError
from trafo.evaluate import Evaluation
from trafo.models import CausalLM
from trafo.runtime.console import say
from trafo.runtime.progress import Bar, progress
from trafo.runtime.sizes import format_duration
from trafo.train.curve import draw_curve
from trafo.train.distributed import whole_model
from trafo.train.metrics import Board, MetricsFile, Record, open_boards, read_metrics
from trafo.train.norms import NormWatch
from trafo.train.samples import write_sample
from trafo.train.step import StepResult

if TYPE_CHECKING:
    from trafo.train.loop import Trainer

# The rate shown is a mean over about this many steps.
_MEMORY = 20
_SPIKE_NATS = 2.0
_SECONDS_BETWEEN_CURVES = 60.0  # drawing takes a while, and nobody looks more often


class Reporter:
    """Watches one session. On other ranks than the first it only keeps the time."""

    def __init__(self, trainer: Trainer) -> None:
        self.trainer = trainer
        config = trainer.config
        self.is_silent = not trainer.ranks.is_first
        work = Workload(seq=config.seq, batch_size=config.batch_size)
        self._flops_per_step = account(config.lm, work).flops
        self._peak = config.machine.peak_flops
        self._step_seconds: float | None = None
        self._usual_loss: float | None = None
        self._last: Record = {}
        self._metrics: MetricsFile | None = None
        self._boards: list[Board] = []
        self._norms = NormWatch(trainer.training) if config.watch.norms else None
        self._steps_here = 0
        self._began = perf_counter()
        self._drawn = perf_counter()
        self._bar: Bar | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Reporter:
        if self.is_silent:
            return self
        config, state = self.trainer.config, self.trainer.state
        if self._peak is None:
            self._peak = (
                measured_peak_flops(self.trainer.training.device) * self.trainer.ranks.world
            )
        self.reopen()
        settings: dict[str, Any] = {"steps": state.plan.steps, "batch_size": config.batch_size}
        self._boards = open_boards(
            self.trainer.folder.tensorboard,
            state.step,
            tensorboard=config.watch.tensorboard,
            wandb=config.watch.wandb,
            settings=settings,
        )
        self._bar = self._stack.enter_context(
            progress("training", total=state.plan.steps, unit="steps", tell=self.line)
        )
        self._bar.completed = state.step
        self._began = perf_counter()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, trace)
        if self.is_silent:
            return
        for board in self._boards:
            board.close()
        if self._metrics is not None:
            self._metrics.close()
        self._draw()

    def reopen(self) -> None:
        """Go on after the step at which the training now is; later entries are dropped."""
        if not self.is_silent:
            if self._metrics is not None:
                self._metrics.close()
            self._metrics = MetricsFile(self.trainer.folder.metrics, self.trainer.state.step)

    @property
    def seconds_per_step(self) -> float:
        """What a step costs in this session, with validations, samples and checkpoints."""
        return (perf_counter() - self._began) / max(1, self._steps_here)

    def step(self, result: StepResult, factor: float, seconds: float) -> None:
        """A step has been made."""
        self._steps_here += 1
        self._keep_time(seconds)
        if self.is_silent:
            return
        self._watch_for_spikes(result.loss)
        self._last = self._record(result, factor)
        step, plan = self.trainer.state.step, self.trainer.state.plan
        log_every = self.trainer.config.watch.log_every
        if plan.is_due(log_every, step) or step == 1:
            norms = self._norms.take() if self._norms else {}
            self._write(self._last | norms)
        if self._norms is not None:
            self._norms.expect(plan.is_due(log_every, step + 1))
        if self._bar is not None:
            self._bar.total = plan.steps
            self._bar.advance()

    def validation(self, evaluation: Evaluation) -> None:
        """The model has been measured."""
        self._write(
            {
                "step": self.trainer.state.step,
                "kind": "validation",
                "loss": evaluation.loss,
                "perplexity": evaluation.perplexity,
                "bits_per_byte": evaluation.bits_per_byte,
                "tokens": evaluation.num_tokens,
                "seconds": self.trainer.seconds,
            }
        )
        if perf_counter() - self._drawn > _SECONDS_BETWEEN_CURVES:
            self._draw()

    def sample(self) -> None:
        """Let the model write something."""
        training = self.trainer.training
        model = whole_model(training.model, training.config.lm, training.ranks)
        if not isinstance(model, CausalLM):
            return
        try:
            write_sample(training, model, self.trainer.folder.samples, self.trainer.state.step)
        except StorageError as error:
            say(f"{error}")

    def line(self) -> str:
        """Step, time left, losses, rate, gradient norm, speed, share of the peak."""
        state, last = self.trainer.state, self._last
        parts = [f"step {state.step:,}/{state.plan.steps:,}"]
        if last:
            left = (state.plan.steps - state.step) * self.seconds_per_step
            parts += [f"{format_duration(left)} left", f"loss {last['loss']:.3f}"]
            if state.validation_loss is not None:
                parts.append(f"val {state.validation_loss:.3f}")
            parts += [f"lr {last['lr']:.1e}", f"grad {last['grad_norm']:.2f}"]
            parts.append(f"{last['tokens_per_second']:,.0f} tokens/s")
            parts.append(f"{100 * last['utilisation']:.0f} % of peak")
        return "  ".join(parts)

    def _record(self, result: StepResult, factor: float) -> Record:
        config = self.trainer.config
        assert self._step_seconds is not None
        assert self._peak is not None
        return {
            "step": self.trainer.state.step,
            "kind": "train",
            "loss": result.loss,
            "lr": factor * config.optimizer.lr,
            "grad_norm": result.grad_norm,
            "batch": result.batch,
            "tokens_per_second": config.tokens_per_step / self._step_seconds,
            "utilisation": self._flops_per_step / self._step_seconds / self._peak,
            "seconds": self.trainer.seconds,
        }

    def _keep_time(self, seconds: float) -> None:
        if self._step_seconds is None or self._steps_here == 2:  # the first one warms up
            self._step_seconds = seconds
        else:
            self._step_seconds += (seconds - self._step_seconds) / _MEMORY

    def _watch_for_spikes(self, loss: float) -> None:
        if self._usual_loss is None:
            self._usual_loss = loss
        if loss > self._usual_loss + _SPIKE_NATS:
            step = self.trainer.state.step
            say(f"step {step}: the loss jumped from about {self._usual_loss:.2f} to {loss:.2f}")
            self._usual_loss = loss  # said once, not at each step of the spike
        self._usual_loss += (loss - self._usual_loss) / _MEMORY

    def _write(self, record: Record) -> None:
        assert self._metrics is not None
        try:
            self._metrics.add(record)
            for board in self._boards:
                board.add(record)
        except StorageError as error:
            say(f"{error}")

    def _draw(self) -> None:
        folder = self.trainer.folder
        self._drawn = perf_counter()
        try:
            records = read_metrics(folder.metrics)
            if any(record["kind"] == "train" for record in records):
                draw_curve(records, folder.curve, folder.path.name)
        except StorageError as error:
            say(f"{error}")
