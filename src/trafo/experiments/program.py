"""The program that trains runs (`worker.py`), started here or on a node of a cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from trafo.runtime.process import LineProgram

_MODULE = "trafo.experiments.worker"
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class LostProgramError(Exception):
    """The machine that a program ran on is gone; the run can be resumed on another."""


class Program(Protocol):
    """Takes a line, works on it, and answers with a line."""

    @property
    def is_alive(self) -> bool:
        """Whether it can take another line."""

    def send(self, line: str) -> None:
        """Give it a line."""

    def answer(self) -> str | None:
        """The answer; None if there is none yet, empty if the program has ended."""

    def stop(self) -> None:
        """Ask it to save and end."""

    def close(self) -> None:
        """Wait until it has ended."""


def environment(threads: int) -> dict[str, str]:
    """Environment variables that limit a run to its own threads."""
    return dict.fromkeys(_THREADS, str(threads))


class LocalProgram(LineProgram):
    """A process of this machine."""

    def __init__(self, threads: int) -> None:
        super().__init__(["-m", _MODULE], environment(threads))


@contextmanager
def programs_on(on: str, must_see: Path) -> Iterator[tuple[int, Callable[[int], Program]]]:
    """The CPUs of a cluster, and what starts a program on any node that has some to spare.

    `must_see` is a file that every node must find, because it is in the folder of the runs.
    """
    from trafo.cluster.connect import connected, num_cpus
    from trafo.cluster.processes import NodeDiedError, RemoteProgram

    class ClusterProgram(RemoteProgram):
        def __init__(self, threads: int) -> None:
            super().__init__(["-m", _MODULE], threads, environment(threads), must_see)

        def answer(self) -> str | None:
            try:
                return super().answer()
            except NodeDiedError as error:
                raise LostProgramError(str(error)) from None

    with connected(on):
        yield num_cpus(), ClusterProgram
