"""SIGINT and SIGTERM -> a note for the loop, which saves and leaves. A second one ends at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
