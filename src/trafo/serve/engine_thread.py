"""One thread that steps the engines of all models in turn.

One thread for all of them, because every thread that runs kernels has its own OpenMP threads, and
there should not be more of those than cores.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class TakesTurns(Protocol):
    """An engine with its requests."""

    @property
    def has_work(self) -> bool:
        """Whether a turn would do anything."""

    def take_turn(self) -> None:
        """One step; must not raise."""


class EngineThread:
    """Runs while it has workers. Used from any thread."""

    def __init__(self) -> None:
        self._workers: list[TakesTurns] = []
        self._leaving: dict[TakesTurns, threading.Event] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def add(self, worker: TakesTurns) -> None:
        """Give it turns from now on."""
        with self.changes():
            self._workers.append(worker)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
                self._thread.start()

    def remove(self, worker: TakesTurns) -> None:
        """Give it no more turns; returns when its last one has ended."""
        with self.changes():
            if worker not in self._workers:
                return
            gone = self._leaving[worker] = threading.Event()
        gone.wait()

    @contextmanager
    def changes(self) -> Iterator[None]:
        """Change something in the block that the thread reads between two turns; wakes it up."""
        with self._changed:
            yield
            self._changed.notify()

    def _run(self) -> None:
        while workers := self._with_work():
            for worker in workers:
                worker.take_turn()

    def _with_work(self) -> list[TakesTurns]:
        """Wait for workers with work; an empty list: no workers are left."""
        with self._changed:
            while True:
                for worker, gone in self._leaving.items():
                    self._workers.remove(worker)
                    gone.set()
                self._leaving.clear()
                if not self._workers:
                    self._thread = None
                    return []
                if workers := [worker for worker in self._workers if worker.has_work]:
                    return workers
                self._changed.wait()
