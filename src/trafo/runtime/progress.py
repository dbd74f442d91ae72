"""Progress of a long job, on stderr.

    with progress("reading", total=size, unit="MB", scale=1e6) as bar:
        bar.advance(len(chunk))

On a terminal or in a notebook it is a live bar: description, completed and total, rate, time left,
cut at the end to fit the terminal's width. When piped, it is a plain line every few seconds and one
at the end, and nothing for short jobs.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from time import perf_counter
from typing import Any

from trafo.runtime import console
from trafo.runtime.sizes import format_duration, format_rate

_SECONDS_WORTH_A_LINE = 0.5
_WIDE_COLUMNS = 120  # of a terminal with room for a long bar and the time elapsed

_quiet = False


def set_quiet(quiet: bool) -> None:
    """Switch all progress of this process off, or on again."""
    global _quiet
    _quiet = quiet


@contextmanager
def progress(
    description: str,
    *,
    total: float | None = None,
    unit: str = "items",
    scale: float = 1,
    status_parts: Callable[[], Sequence[str]] | None = None,
) -> Iterator[Bar]:
    """Show the block's progress. Amounts are counted plainly and shown divided by `scale`.

    A job with more to show than an amount and a rate gives `status_parts`, called at each update:
    its parts, the most important first.
    """
    kind: type[Bar] = Bar
    if not _quiet:
        stderr = console.messages()
        has_cursor = stderr.is_terminal and not stderr.is_dumb_terminal
        kind = LiveBar if has_cursor else NotebookBar if stderr.is_jupyter else PlainBar
    bar = kind(description, total, unit, scale, status_parts)
    try:
        yield bar
        bar._finish()
    finally:
        bar._close()


class Bar:
    """Counts what is done. `advance` may be called by any thread. This one shows nothing."""

    interval = float("inf")
    """seconds between two updates"""

    def __init__(
        self,
        description: str,
        total: float | None,
        unit: str,
        scale: float,
        status_parts: Callable[[], Sequence[str]] | None,
    ) -> None:
        self.description, self.total = description, total
        self.completed = 0.0
        self._unit, self._scale, self._status_parts = unit, scale, status_parts
        self._started = perf_counter()
        self._lock = Lock()
        self._next_update = self._started + self.interval

    def advance(self, amount: float = 1) -> None:
        """Add to what is done. Costs well under a microsecond unless it is time to show it."""
        with self._lock:
            self.completed += amount
            now = perf_counter()
            if now < self._next_update:
                return
            self._next_update = now + self.interval
            self._update()

    @property
    def elapsed(self) -> float:
        """Seconds since the bar was opened."""
        return perf_counter() - self._started

    def status(self, width: float = float("inf")) -> str:
        """Such as `12.5/50.0 MB, 3.1 MB/s, 12.0 s left`, or the job's own status.

        Of what is longer than `width`, as many parts from the beginning as fit, and at least one.
        """
        own = self._status_parts
        parts, between = (list(self._parts()), ", ") if own is None else (list(own()), "  ")
        while len(parts) > 1 and len(between.join(parts)) > width:
            parts.pop()
        return between.join(parts)

    def _parts(self) -> Iterator[str]:
        elapsed = self.elapsed
        rate = self.completed / elapsed if elapsed > 0 else 0.0
        of_total = "" if self.total is None else f"/{self._number(self.total)}"
        yield f"{self._number(self.completed)}{of_total} {self._unit}"
        if rate > 0:
            is_plain = self._scale == 1
            scaled = f"{self._number(rate)} {self._unit}/s"
            yield format_rate(rate, self._unit) if is_plain else scaled
        if self.total is not None and 0 < self.completed < self.total and rate > 0:
            yield f"{format_duration((self.total - self.completed) / rate)} left"

    def _number(self, value: float) -> str:
        return f"{value:,.0f}" if self._scale == 1 else f"{value / self._scale:,.1f}"

    def _update(self) -> None:
        """Show it as it is now."""

    def _finish(self) -> None:
        """Show it for the last time."""

    def _close(self) -> None:
        """Give the terminal back, also after an error."""


class PlainBar(Bar):
    """One line at a time, for logs and pipes, with the total time in the last."""

    interval = 5.0

    def _update(self) -> None:
        console.say(f"{self.description}: {self.status()}")

    def _finish(self) -> None:
        if self.elapsed >= _SECONDS_WORTH_A_LINE:
            console.say(f"{self.description}: {self.status()}, {format_duration(self.elapsed)}")


class LiveBar(Bar):
    """A bar that redraws itself in place, for terminals."""

    interval = 0.1

    def __init__(self, description: str, total: float | None, *settings: Any) -> None:
        from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

        super().__init__(description, total, *settings)
        is_wide = console.messages().width >= _WIDE_COLUMNS
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

    def _update(self) -> None:
        status = self.status(console.messages().width - self._taken)
        self._progress.update(self._task, completed=self.completed, total=self.total, status=status)

    def _finish(self) -> None:
        # A job of unknown length turns out to be complete.
        self.total = self.completed if self.total is None else self.total
        self._update()

    def _close(self) -> None:
        self._progress.stop()  # the last frame stays


class NotebookBar(Bar):
    """A bar in the output of a notebook's cell, redrawn in place without widgets."""

    interval = 0.1
    _handle: Any = None

    def _update(self) -> None:
        from IPython.display import HTML, display

        total = "" if self.total is None else f' max="{self.total}" value="{self.completed}"'
        text = html.escape(f"{self.description}  {self.status()}")
        content = HTML(f"<progress{total}></progress> <code>{text}</code>")
        if self._handle is None:
            self._handle = display(content, display_id=True)
        else:
            self._handle.update(content)

    def _finish(self) -> None:
        if self._handle is not None or self.elapsed >= _SECONDS_WORTH_A_LINE:
            self._update()
