"""This process and its children: signals, the seed, and Python programs driven line by line."""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

from trafo.errors import require

SECONDS_TO_END = 60.0
"""what a program has to end by itself before it is killed"""


class Interruption:
    """The SIGINT (Ctrl-C) or SIGTERM that has come, if any."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None

    def note(self, number: int, frame: FrameType | None = None) -> None:
        """Handle a signal: remember the first one, stop at once at the second."""
        if self.signal is not None:
            raise KeyboardInterrupt
        self.signal = signal.Signals(number)


@contextmanager
def catch_interruptions() -> Iterator[Interruption]:
    """Note signals within the block, which looks at them when it can stop."""
    interruption = Interruption()
    with handle_signals(interruption.note, signal.SIGINT, signal.SIGTERM):
        yield interruption


@contextmanager
def handle_signals(
    handler: Callable[[int, FrameType | None], None], *signals: signal.Signals
) -> Iterator[None]:
    """Handle signals within the block, and restore the earlier handlers after it."""
    try:
        before = {number: signal.signal(number, handler) for number in signals}
    except ValueError:  # only the main thread may set handlers
        before = {}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def check_seed(seed: int) -> None:
    """Refuse a seed that numpy does not accept."""
    require(0 <= seed < 2**32, f"seed is {seed}", "choose from 0 to 4294967295")


def seed_everything(seed: int) -> None:
    """Seed `random`, numpy and, if it is imported, torch on every device."""
    import numpy as np

    check_seed(seed)
    random.seed(seed)
    np.random.seed(seed)
    # Text work must run without torch, and code that uses torch has imported it before seeding.
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.manual_seed(seed)


class LineProgram:
    """A Python program that answers each line on its stdin with a line, and ends when it does."""

    def __init__(
        self, arguments: Sequence[str], environment: Mapping[str, str], folder: str | None = None
    ) -> None:
        """Start Python with these arguments, and variables beside our own."""
        self._process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=folder,
            env=os.environ | environment,
            start_new_session=True,  # Ctrl-C comes to us, and we stop it
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._stdin, self._stdout = self._process.stdin, self._process.stdout

    @property
    def is_alive(self) -> bool:
        """Whether it can take another line."""
        return self._process.poll() is None

    def send(self, line: str) -> None:
        """Give it a line."""
        with suppress(BrokenPipeError):  # it has died, and the answer will say so
            self._stdin.write(line + "\n")
            self._stdin.flush()

    def answer(self) -> str | None:
        """Return the answer, None if there is none yet, "" if the program has ended."""
        if not select.select([self._stdout], [], [], 0)[0]:
            return None
        return self.wait_for_answer()

    def wait_for_answer(self) -> str:
        """Return the answer, "" if the program has ended."""
        return self._stdout.readline()

    def stop(self) -> None:
        """Ask it to save and end."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)

    def close(self) -> None:
        """Wait until it has ended, and kill it if that takes too long."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._stdout.close()
