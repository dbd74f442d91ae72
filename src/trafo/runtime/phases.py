"""Seconds per named phase of a job: `with timer.phase("counting"): ...`, then `timer.seconds`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from trafo.runtime.sizes import format_duration


class PhaseTimer:
    """Adds up wall-clock seconds under names, in the order in which the names first appear."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Time the block and add it to `name`, also when the block raises."""
        start = perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - start

    @property
    def total(self) -> float:
        """Seconds in all phases together."""
        return sum(self.seconds.values())

    def summary(self) -> str:
        """Such as `counting 1.2 s, merging 0.4 s`."""
        return ", ".join(f"{name} {format_duration(s)}" for name, s in self.seconds.items())
