"""SIGINT (Ctrl-C) and SIGTERM, handled for as long as a block runs."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

Handler = Callable[[int, FrameType | None], None]


class Interruption:
    """The signal that has come, if any; a second one stops at once."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """The signal handler."""
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)


@contextmanager
def interruptions() -> Iterator[Interruption]:
    """Note signals within the block, which looks at them when it can stop."""
    interruption = Interruption()
    with handling(interruption.note, signal.SIGINT, signal.SIGTERM):
        yield interruption


@contextmanager
def handling(handler: Handler, *signals: signal.Signals) -> Iterator[None]:
    """Handle signals within the block; restore the earlier handlers after it."""
    try:
        before = {number: signal.signal(number, handler) for number in signals}
    except ValueError:  # only the main thread may set handlers
        before = {}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
