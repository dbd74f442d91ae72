"""Progress of a long job, on stderr.

    with progress("reading", total=size, unit="MB", scale=1e6) as bar:
        bar.advance(len(chunk))

On a terminal or in a notebook it is a live bar: description, completed and total, rate, time left,
cut at the end to fit the terminal's width. When piped, it is a plain line every few seconds and one
at the end; nothing for short jobs.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from time import perf_counter
from typing import Any

from trafo.runtime import console
from trafo.runtime.sizes import format_duration, format_rate

SECONDS_BETWEEN_FRAMES = 0.1
SECONDS_BETWEEN_LINES = 5.0
SECONDS_WORTH_A_LINE = 0.5
WIDE = 120
"""columns of a terminal with room for a long bar and the time elapsed"""

_quiet = False


def set_quiet(quiet: bool) -> None:
    """Switch all progress of this process off, or on again."""
    global _quiet
    _quiet = quiet


@dataclass
class Bar:
    """Counts what is done and shows it at intervals. `advance` may be called by any thread."""

    description: str
    total: float | None
    unit: str
    scale: float
    tell: Callable[[], Sequence[str]] | None
    display: Display
    completed: float = 0.0

    def __post_init__(self) -> None:
        self._started = perf_counter()
        self._lock = Lock()
        self._next_update = self._started + self.display.interval

    def advance(self, amount: float = 1) -> None:
        """Add to what is done. Costs well under a microsecond unless it is time to show it."""
        with self._lock:
            self.completed += amount
            now = perf_counter()
            if now < self._next_update:
                return
            self._next_update = now + self.display.interval
            self.display.update(self)

    @property
    def elapsed(self) -> float:
        """Seconds since the bar was opened."""
        return perf_counter() - self._started

    def status(self, width: float = float("inf")) -> str:
        """Such as `12.5/50.0 MB, 3.1 MB/s, 12.0 s left`, or the job's own status (`tell`).

        Of what is longer than `width`, as many parts from the beginning as fit, and at least one.
        """
        parts, between = list(self._parts()), ", " if self.tell is None else "  "
        while len(parts) > 1 and len(between.join(parts)) > width:
            parts.pop()
        return between.join(parts)

    def _parts(self) -> Iterator[str]:
        if self.tell is not None:
            yield from self.tell()
            return
        elapsed = self.elapsed
        rate = self.completed / elapsed if elapsed > 0 else 0.0
        of_total = "" if self.total is None else f"/{self._number(self.total)}"
        yield f"{self._number(self.completed)}{of_total} {self.unit}"
        if rate > 0:
            yield self._rate(rate)
        if self.total is not None and 0 < self.completed < self.total and rate > 0:
            yield f"{format_duration((self.total - self.completed) / rate)} left"

    def _rate(self, rate: float) -> str:
        if self.scale == 1:
            return format_rate(rate, self.unit)
        return f"{self._number(rate)} {self.unit}/s"

    def _number(self, value: float) -> str:
        return f"{value:,.0f}" if self.scale == 1 else f"{value / self.scale:,.1f}"


class Display:
    """Where a bar is shown; this one shows nothing."""

    interval = float("inf")
    """seconds between two updates"""

    def update(self, bar: Bar) -> None:
        """Show the bar as it is now."""

    def finish(self, bar: Bar) -> None:
        """Show it for the last time."""

    def close(self) -> None:
        """Give the terminal back, also after an error."""


class PlainLines(Display):
    """One line at a time, for logs and pipes."""

    interval = SECONDS_BETWEEN_LINES

    def update(self, bar: Bar) -> None:
        """One line."""
        console.say(f"{bar.description}: {bar.status()}")

    def finish(self, bar: Bar) -> None:
        """A last line with the total time, unless it was short."""
        if bar.elapsed >= SECONDS_WORTH_A_LINE:
            console.say(f"{bar.description}: {bar.status()}, {format_duration(bar.elapsed)}")


class LiveBar(Display):
    """A bar that redraws itself in place, for terminals."""

    interval = SECONDS_BETWEEN_FRAMES

    def __init__(self, description: str, total: float | None) -> None:
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

        is_wide = console.messages().width >= WIDE
        bar_width, elapsed_width = (24, 8) if is_wide else (10, 0)
        # A terminal with 16 colours has these exactly; shades of rich's own theme look alike there.
        bar = BarColumn(
            bar_width, style="bright_black", complete_style="cyan", finished_style="bold green"
        )
        columns: list[ProgressColumn] = [
            TextColumn("{task.description}", markup=False),
            bar,
            TextColumn("{task.fields[status]}", markup=False),
        ]
        if is_wide:
            columns.append(TimeElapsedColumn())
        # One space between two columns, and one at the end: a full last column wraps on some.
        self._taken = len(description) + bar_width + elapsed_width + len(columns)
        self._progress = Progress(*columns, console=console.messages())
        self._task = self._progress.add_task(description, total=total, status="")
        self._progress.start()

    def update(self, bar: Bar) -> None:
        """Redraw."""
        status = bar.status(console.messages().width - self._taken)
        self._progress.update(self._task, completed=bar.completed, total=bar.total, status=status)

    def finish(self, bar: Bar) -> None:
        """Redraw for the last time; a job of unknown length turns out to be complete."""
        bar.total = bar.completed if bar.total is None else bar.total
        self.update(bar)

    def close(self) -> None:
        """Give the terminal back; the last frame stays."""
        self._progress.stop()


class NotebookBar(Display):
    """A bar in the output of a notebook's cell, redrawn in place; needs no widgets."""

    interval = SECONDS_BETWEEN_FRAMES

    def __init__(self) -> None:
        self._handle: Any = None

    def update(self, bar: Bar) -> None:
        """Redraw."""
        from IPython.display import HTML, display

        total = "" if bar.total is None else f' max="{bar.total}" value="{bar.completed}"'
        text = html.escape(f"{bar.description}  {bar.status()}")
        content = HTML(f"<progress{total}></progress> <code>{text}</code>")
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)

    def finish(self, bar: Bar) -> None:
        """Redraw for the last time, unless it was short and never shown."""
        if self._handle is not None or bar.elapsed >= SECONDS_WORTH_A_LINE:
            self.update(bar)


@contextmanager
def progress(
    description: str,
    *,
    total: float | None = None,
    unit: str = "items",
    scale: float = 1,
    tell: Callable[[], Sequence[str]] | None = None,
) -> Iterator[Bar]:
    """Show the block's progress. Amounts are counted plainly and shown divided by `scale`.

    A job with more to show than an amount and a rate gives `tell`, called at each update: its
    parts, the most important first.
    """
    display = _choose_display(description, total)
    bar = Bar(description, total, unit, scale, tell, display)
    try:
        yield bar
        display.finish(bar)
    finally:
        display.close()


def _choose_display(description: str, total: float | None) -> Display:
    if _quiet:
        return Display()
    stderr = console.messages()
    if stderr.is_terminal and not stderr.is_dumb_terminal:
        return LiveBar(description, total)
    return NotebookBar() if stderr.is_jupyter else PlainLines()
