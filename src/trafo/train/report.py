"""What a person and their tools see of a training: the live line, files, boards, the curve.

The trainer tells what happens; who listens decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter

from trafo.errors import StorageError
from trafo.runtime.atomic import storage_errors
from trafo.runtime.console import say
from trafo.runtime.progress import Bar, progress
from trafo.runtime.sizes import format_duration
from trafo.train.config import TrainConfig
from trafo.train.curve import draw_curve
from trafo.train.metrics import Board, MetricsFile, Record, open_boards
from trafo.train.run import Run, TrainerState

_SMOOTHING = 20  # steps that the usual loss is a mean of
_SPIKE_NATS = 2.0
_SECONDS_BETWEEN_CURVES = 60.0  # drawing takes a while, and nobody looks more often
_LONGEST_SAMPLE = 200  # characters on the screen


class Listener:
    """Hears what happens in a training. This one stays silent: all ranks but the first have it."""

    def listening(
        self, state: TrainerState, seconds_left: float | None
    ) -> AbstractContextManager[None]:
        """A session begins here and ends with the block; with a budget, how long it may take."""
        return nullcontext()

    def step(self, record: Record, *, steps: int, seconds_left: float, is_logged: bool) -> None:
        """A step has been made, of so many."""

    def validation(self, record: Record) -> None:
        """The model has been measured."""

    def sample(self, step: int, text: str) -> None:
        """The model has written something."""

    def went_back(self, step: int) -> None:
        """The training goes on after this step; what was recorded of later ones is void."""

    def note(self, text: str) -> None:
        """Something happened that one should know."""


class Reporter(Listener):
    """Shows a session on the terminal and writes it into the run's folder."""

    def __init__(self, run: Run, config: TrainConfig) -> None:
        self._run = run
        self._config = config
        self._metrics: MetricsFile | None = None
        self._boards: list[Board] = []
        self._bar: Bar | None = None
        self._last: Record = {}
        self._steps = 0
        self._seconds_left: float | None = None
        self._validation_loss: float | None = None
        self._bleu: float | None = None
        self._usual_loss: float | None = None
        self._drawn = perf_counter()

    @contextmanager
    def listening(self, state: TrainerState, seconds_left: float | None) -> Iterator[None]:
        self._seconds_left = seconds_left
        self._steps, self._validation_loss = state.plan.steps, state.validation_loss
        self._last = {"step": state.step}
        self.went_back(state.step)
        self._boards = open_boards(self._run.tensorboard_folder, state.step, self._config)
        try:
            with progress("training", total=self._steps, unit="steps", tell=self.line) as self._bar:
                self._bar.completed = state.step
                yield
        finally:
            self._close()
            self._draw()

    def step(self, record: Record, *, steps: int, seconds_left: float, is_logged: bool) -> None:
        self._last, self._steps, self._seconds_left = record, steps, seconds_left
        self._warn_of_spikes(record["step"], record["loss"])
        if is_logged:
            self._write(record)
        if self._bar is not None:
            self._bar.total = steps
            self._bar.advance()

    def validation(self, record: Record) -> None:
        if record["kind"] == "validation":
            self._validation_loss = record["loss"]
            self._bleu = record.get("bleu")
        self._write(record)
        if perf_counter() - self._drawn > _SECONDS_BETWEEN_CURVES:
            self._draw()

    def sample(self, step: int, text: str) -> None:
        flat = " ".join(text.split())
        short = flat[:_LONGEST_SAMPLE] + ("..." if len(flat) > _LONGEST_SAMPLE else "")
        say(f"  step {step} writes: {short}")
        path = self._run.samples_file
        with _said(), storage_errors(path), path.open("a", encoding="utf-8") as file:
            file.write(f"--- step {step} ---\n{text}\n\n")

    def went_back(self, step: int) -> None:
        if self._metrics is not None:
            self._metrics.close()
        self._metrics = MetricsFile(self._run.metrics_file, step)

    def note(self, text: str) -> None:
        say(text)

    def line(self) -> str:
        """Step, time left, losses, learning rate, gradient norm, speed, share of the peak."""
        last = self._last
        parts = [f"step {last['step']:,}/{self._steps:,}"]
        if self._seconds_left is not None:
            parts.append(f"{format_duration(self._seconds_left)} left")
        if "loss" in last:
            parts.append(f"loss {last['loss']:.3f}")
            if self._validation_loss is not None:
                parts.append(f"val {self._validation_loss:.3f}")
            if self._bleu is not None:
                parts.append(f"BLEU {self._bleu:.1f}")
            parts += [f"lr {last['lr']:.1e}", f"grad {last['grad_norm']:.2f}"]
            parts.append(f"{last['tokens_per_second']:,.0f} tokens/s")
            parts.append(f"{100 * last['utilisation']:.0f} % of peak")
        return "  ".join(parts)

    def _warn_of_spikes(self, step: int, loss: float) -> None:
        usual = loss if self._usual_loss is None else self._usual_loss
        if loss > usual + _SPIKE_NATS:
            say(f"step {step}: the loss jumped from about {usual:.2f} to {loss:.2f}")
            usual = loss  # said once, not at each step of the spike
        self._usual_loss = usual + (loss - usual) / _SMOOTHING

    def _write(self, record: Record) -> None:
        assert self._metrics is not None
        with _said():
            self._metrics.add(record)
            for board in self._boards:
                board.add(record)

    def _draw(self) -> None:
        self._drawn = perf_counter()
        with _said():
            records = self._run.metrics
            if any(record["kind"] == "train" for record in records):
                draw_curve(records, self._run.curve_file, self._run.path.name)

    def _close(self) -> None:
        for board in self._boards:
            board.close()
        if self._metrics is not None:
            self._metrics.close()


@contextmanager
def _said() -> Iterator[None]:
    """What cannot be written is said; it is no reason to end a training."""
    try:
        yield
    except StorageError as error:
        say(f"{error}")
