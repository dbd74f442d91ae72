"""Threads for kernels, which run without the GIL."""

import os
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

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
    """An option that counts something there must be one of."""
    if value < 1:
        raise InputError(f"{name} is {value}", hint="it must be at least 1")
    return value


def map_in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], num_workers: int | None = None
) -> list[Result]:
    """The results in order. One item or one worker needs no thread."""
    items = list(items)
    num_workers = min(num_workers or default_workers(), len(items))
    if num_workers <= 1:
        return [function(item) for item in items]
    with ThreadPoolExecutor(num_workers) as pool:
        return list(pool.map(function, items))


def map_in_order(
    function: Callable[[Item], Result], items: Iterable[Item], num_workers: int
) -> Iterator[Result]:
    """The results in order, as they are asked for; only a few items are under way at a time."""
    if num_workers <= 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(num_workers) as pool:
        under_way: deque[Future[Result]] = deque()
        for item in items:
            under_way.append(pool.submit(function, item))
            if len(under_way) > 2 * num_workers:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()


def feed(items: Iterable[Item], consumers: Sequence[Callable[[Item], None]]) -> None:
    """Give every item to one of the consumers, each in a thread of its own.

    Items are made here, in the calling thread, never many more than are being consumed. The
    first error ends it and is raised.
    """
    if len(consumers) == 1:
        for item in items:
            consumers[0](item)
        return
    waiting: queue.Queue[Item | None] = queue.Queue(maxsize=len(consumers))
    errors: list[BaseException] = []

    def consume(consumer: Callable[[Item], None]) -> None:
        while (item := waiting.get()) is not None:
            if errors:
                continue  # only empties the queue, so that nobody waits for ever
            try:
                consumer(item)
            except BaseException as error:
                errors.append(error)

    threads = [threading.Thread(target=consume, args=[c], daemon=True) for c in consumers]
    for thread in threads:
        thread.start()
    try:
        for item in items:
            if errors:
                break
            waiting.put(item)
    except BaseException as error:
        errors.insert(0, error)
    for _ in threads:
        waiting.put(None)
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


class OrderedSpace:
    """Hands out consecutive places in the order of numbers, whichever thread asks first."""

    def __init__(self) -> None:
        self.size = 0
        self._next = 0
        self._has_failed = False
        self._changed = threading.Condition()

    def reserve(self, number: int, size: int) -> int:
        """Where the part with this number begins; waits until those before have theirs."""
        with self._changed:
            self._changed.wait_for(lambda: self._next == number or self._has_failed)
            if self._has_failed:
                raise RuntimeError("another part failed")
            offset = self.size
            self.size += size
            self._next += 1
            self._changed.notify_all()
            return offset

    @contextmanager
    def failing_together(self) -> Iterator[None]:
        """If one thread fails, none may wait for it for ever."""
        try:
            yield
        except BaseException:
            with self._changed:
                self._has_failed = True
                self._changed.notify_all()
            raise
