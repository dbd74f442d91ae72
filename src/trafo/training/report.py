"""What is shown of a training run: progress line, files, TensorBoard, loss curve.

The trainer reports what happens; a listener decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from time import perf_counter

from trafo.errors import StorageError
from trafo.runtime.atomic import storage_errors
from trafo.runtime.console import say
from trafo.runtime.progress import Bar, progress
from trafo.runtime.sizes import format_duration, format_rate
from trafo.training.config import TrainConfig
from trafo.training.curve import draw_curves
from trafo.training.metrics import Board, MetricsFile, Record, open_boards
from trafo.training.run import Run, TrainerState

_SMOOTHING = 20  # steps that the usual loss is a mean of
_SPIKE_NATS = 2.0
_SECONDS_BETWEEN_CURVES = 60.0  # drawing takes a while
_LONGEST_SAMPLE = 200  # characters on the screen


class Listener:
    """Receives what happens in training. This one ignores it, for all ranks but the first."""

    def listening(
        self, state: TrainerState, seconds_left: float | None
    ) -> AbstractContextManager[None]:
        """A session begins here and ends with the block; `seconds_left` is that of a budget."""
        return nullcontext()

    def step(self, record: Record, *, steps: int, seconds_left: float, is_logged: bool) -> None:
        """A step is done, out of `steps`."""

    def validation(self, record: Record) -> None:
        """The model has been validated."""

    def sample(self, step: int, text: str) -> None:
        """The model has generated a sample."""

    def diverged(self, step: int) -> None:
        """Loss or gradients of this step are not finite; training is about to go back."""

    def went_back(self, step: int, num_records: int = 0) -> None:
        """Training continues after this step; records of later steps are void."""

    def note(self, text: str) -> None:
        """A message for the user."""


class Reporter(Listener):
    """Shows a session on the terminal and writes it into the run's folder."""

    def __init__(self, run: Run, config: TrainConfig) -> None:
        self._run = run
        self._config = config
        self._metrics: MetricsFile | None = None
        self._boards: list[Board] = []
        self._troubles: dict[str, str] = {}
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
        """Show progress, open the files; close them at the end."""
        self._seconds_left = seconds_left
        self._steps, self._validation_loss = state.plan.steps, state.validation_loss
        self._last = {"step": state.step}
        self.went_back(state.step, state.records)
        self._boards = open_boards(self._run.tensorboard_folder, state.step, self._config)
        try:
            with progress(
                "training",
                total=self._steps,
                unit="steps",
                status_parts=lambda: list(self.status()),
            ) as self._bar:
                self._bar.completed = state.step
                yield
        finally:
            self._close(self._metrics, *self._boards)
            self._draw()

    def step(self, record: Record, *, steps: int, seconds_left: float, is_logged: bool) -> None:
        """Update the progress line; log the record if it is due."""
        self._last, self._steps, self._seconds_left = record, steps, seconds_left
        self._warn_of_spikes(record["step"], record["loss"])
        if is_logged:
            self._write(record)
        if self._bar is not None:
            self._bar.total = steps
            self._bar.advance()

    def validation(self, record: Record) -> None:
        """Log the record."""
        self._validation_loss = record["loss"]
        self._bleu = record.get("bleu")
        self._write(record)
        if perf_counter() - self._drawn > _SECONDS_BETWEEN_CURVES:
            self._draw()

    def sample(self, step: int, text: str) -> None:
        """Print the start, write all of it to samples.txt."""
        flat = " ".join(text.split())
        short = flat[:_LONGEST_SAMPLE] + ("..." if len(flat) > _LONGEST_SAMPLE else "")
        say(f"  step {step} sample: {short}")
        path = self._run.samples_file
        with (
            self._guarded(path.name),
            storage_errors(path),
            path.open("a", encoding="utf-8", errors="replace") as file,
        ):
            file.write(f"--- step {step} ---\n{text}\n\n")

    def went_back(self, step: int, num_records: int = 0) -> None:
        """Drop the records of later steps."""
        self._close(self._metrics)
        with self._guarded(MetricsFile.__name__):
            self._metrics = MetricsFile(self._run.metrics_file, step, num_records)

    def note(self, text: str) -> None:
        """Print it."""
        say(text)

    def status(self) -> Iterator[str]:
        """The progress line: step, time left, losses, speed, learning rate, gradient norm, MFU."""
        last = self._last
        yield f"step {last['step']:,}/{self._steps:,}"
        if self._seconds_left is not None and last["step"] < self._steps:
            yield f"{format_duration(self._seconds_left)} left"
        if "loss" not in last:
            return
        yield f"loss {last['loss']:.3f}"
        if self._validation_loss is not None:
            yield f"val {self._validation_loss:.3f}"
        if self._bleu is not None:
            yield f"BLEU {self._bleu:.1f}"
        yield format_rate(last["tokens_per_second"], "tokens")
        yield f"lr {last['lr']:.1e}"
        yield f"grad {last['grad_norm']:.2f}"
        yield f"{100 * last['utilisation']:.0f} % of peak"

    def _warn_of_spikes(self, step: int, loss: float) -> None:
        usual = loss if self._usual_loss is None else self._usual_loss
        if loss > usual + _SPIKE_NATS:
            say(f"step {step}: the loss jumped from about {usual:.2f} to {loss:.2f}")
            usual = loss  # one message, not one for each step of the spike
        self._usual_loss = usual + (loss - usual) / _SMOOTHING

    def _write(self, record: Record) -> None:
        for observer in (self._metrics, *self._boards):
            if observer is not None:
                with self._guarded(type(observer).__name__):
                    observer.add(record)

    def _draw(self) -> None:
        self._drawn = perf_counter()
        with self._guarded("curve"):
            records = self._run.metrics
            if any(record["kind"] == "train" for record in records):
                draw_curves({self._run.path.name: records}, self._run.curve_file)

    def _close(self, *observers: MetricsFile | Board | None) -> None:
        for observer in observers:
            if observer is not None:
                with self._guarded(type(observer).__name__):
                    observer.close()

    @contextmanager
    def _guarded(self, observer: str) -> Iterator[None]:
        """No observer ends a run: print an error once, and again when it is over."""
        try:
            yield
        except Exception as error:  # of any package
            # A full disk is one trouble, whoever meets it.
            what = error.what if isinstance(error, StorageError) else f"{observer}: {error!r}"
            if what not in self._troubles.values():
                where = f"{error.where}: " if isinstance(error, StorageError) else ""
                say(f"{where}{what}; training continues")
            self._troubles[observer] = what
        else:
            if what := self._troubles.pop(observer, ""):
                others = self._troubles.items()
                self._troubles = {name: other for name, other in others if other != what}
                say(f"resolved: {what}")


Listen = Callable[[Run, TrainConfig], Listener]
"""makes the listener of a session"""
