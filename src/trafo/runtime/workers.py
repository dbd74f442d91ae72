"""Threads for kernels, which run without the GIL."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic, TypeVar

from trafo.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


def default_workers() -> int:
    """As many threads as this process may use cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def checked_workers(num_workers: int | None) -> int:
    """The number of threads asked for; by default one for each core."""
    return default_workers() if num_workers is None else at_least_one("num_workers", num_workers)


def at_least_one(name: str, value: int) -> int:
    """Refuse an option that is less than 1."""
    if value < 1:
        raise InputError(f"{name} is {value}", hint="it must be at least 1")
    return value


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], num_workers: int
) -> Iterator[Result]:
    """The results in order, computed by threads; only a few items are under way at a time.

    Items are made in the calling thread. After an error, nothing new is started.
    """
    if num_workers <= 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(num_workers)
    under_way: deque[Future[Result]] = deque()
    try:
        for item in items:
            under_way.append(pool.submit(function, item))
            if len(under_way) > 2 * num_workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)


class Pool(Generic[Item]):
    """Objects of which each belongs to one thread at a time; made when none is idle."""

    def __init__(self, make: Callable[[], Item]) -> None:
        self.members: list[Item] = []
        self._make = make
        self._idle: list[Item] = []
        self.give_back = self._idle.append  # not a method: encoding a short text calls it

    def take(self) -> Item:
        """One that no other thread uses until it is given back."""
        try:
            return self._idle.pop()
        except IndexError:
            member = self._make()
            self.members.append(member)
            return member

    @contextmanager
    def borrow(self) -> Iterator[Item]:
        """One for the block."""
        member = self.take()
        try:
            yield member
        finally:
            self.give_back(member)
