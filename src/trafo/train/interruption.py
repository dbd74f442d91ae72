"""Ctrl-C and SIGTERM: a flag for the training loop, which saves and stops."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """The signal that has come, if any; a second one stops at once."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def note(self, number: int, frame: FrameType | None) -> None:
        """The signal handler."""
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)


@contextmanager
def interruptions() -> Iterator[Interruption]:
    """Handle signals within the block; restore the earlier handlers after it."""
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
