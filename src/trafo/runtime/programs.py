"""A Python program in its own process, driven line by line through stdin and stdout."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

PATIENCE = 60.0
"""seconds that a program has to end by itself"""


class LineProgram:
    """It takes a line, works on it, and answers with a line; it ends when its stdin does."""

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
        """The answer; None if there is none yet, empty if the program has ended."""
        if not select.select([self._stdout], [], [], 0)[0]:
            return None
        return self.wait_for_answer()

    def wait_for_answer(self) -> str:
        """The answer, empty if the program has ended."""
        return self._stdout.readline()

    def stop(self) -> None:
        """Ask it to save and end."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)

    def close(self) -> None:
        """Wait until it has ended; kill it if that takes too long."""
        with suppress(BrokenPipeError):
            self._stdin.close()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._stdout.close()
