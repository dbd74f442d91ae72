"""Threads: how many are fastest for repeated work, pools for kernels, and threads that end.

Two threads that wait for each other at every step compete with another busy process for the cores:
then one thread is several times as fast. This cannot be predicted, so the work itself is timed.

    threads = ThreadChooser(most=8, use=set_num_threads)
    for batch in batches:
        with threads.timed():
            work(batch)

Each candidate (1, 2, 4, ... up to all) does a few units of work, in turns. The fastest is used, and
one that is twice as slow as another is dropped at once. They are tried again when the work becomes
slower, and from time to time, for at most 5 % of the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from statistics import fmean
from time import perf_counter
from typing import Generic, TypeVar

from trafo.errors import require_at_least
from trafo.runtime.machine import available_cores

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")

_ROUNDS = 2
_UNITS_PER_ROUND = 2  # timed of each candidate, after one that wakes its threads up
_HOPELESS_RATIO = 2.0  # times as slow as the best one: dropped from this trial
_MIN_GAIN = 1.05  # a change must pay at least this much
_SLOWDOWN = 1.5  # times as slow as when it was chosen: try again
_MAX_LOST_SHARE = 0.05  # of the time may be lost by trying
_MIN_SECONDS, _MAX_SECONDS = 2.0, 60.0  # until the next trial
_SMOOTHING_UNITS = 8


class ThreadChooser:
    """A choice among 1, 2, 4, ... and `most` threads by timing, set by calling `use`."""

    def __init__(
        self, most: int, use: Callable[[int], None], clock: Callable[[], float] = perf_counter
    ) -> None:
        powers = [2**i for i in range(most.bit_length()) if 2**i < most]
        self._candidates = [*powers, most]
        self._use = use
        self._clock = clock
        self.number = most
        """threads in use"""
        self._cost = self._usual_cost = self._measured = 0.0  # seconds per unit of work
        self._spent = self._done = 0.0
        self._wait, self._next_trial = _MIN_SECONDS, 0.0
        self._has_chosen = False
        self._trial: Iterator[None] | None = None  # while candidates are compared
        self._begin_trial()

    @contextmanager
    def timed(self, work: float = 1.0) -> Iterator[None]:
        """Time one unit of work, which is `work` times as large as another."""
        start = self._clock()
        yield
        self.add(self._clock() - start, work)

    def watching(self, advance: Callable[[int], object]) -> Callable[[int], None]:
        """Wrap `advance`, which is told of work that is done, to time the work between calls."""
        start = self._clock()

        def add_and_advance(work: int) -> None:
            nonlocal start
            self.add(self._clock() - start, max(1, work))
            advance(work)
            start = self._clock()

        return add_and_advance

    def add(self, seconds: float, work: float = 1.0) -> None:
        """Count a unit of work, and change the number of threads if that is due."""
        if len(self._candidates) == 1:
            return
        self._measured = seconds / work
        if self._trial is not None:
            self._spent, self._done = self._spent + seconds, self._done + work
            if next(self._trial, self) is self:
                self._trial = None
            return
        self._usual_cost += (self._measured - self._usual_cost) / _SMOOTHING_UNITS
        is_slower = self._usual_cost > _SLOWDOWN * self._cost
        if self._clock() >= self._next_trial - (self._wait / 2 if is_slower else 0):
            self._begin_trial()

    @property
    def is_trying(self) -> bool:
        """Whether the next unit of work compares numbers of threads."""
        return self._trial is not None

    @contextmanager
    def all_of_them(self) -> Iterator[None]:
        """Use as many threads as there may be, for the block."""
        number = self.number
        self._set(self._candidates[-1])
        yield
        self._set(number)

    def _begin_trial(self) -> None:
        self._spent = self._done = 0.0
        if len(self._candidates) > 1:
            self._trial = self._try_candidates()
            next(self._trial)

    def _try_candidates(self) -> Iterator[None]:
        """Compare the candidates, yielding once for each unit of work that this needs."""
        before = self.number
        costs: dict[int, list[float]] = {number: [] for number in self._candidates}
        if not self._has_chosen:
            yield from self._glimpse(costs)
        hopeless = {number for number in costs if _is_hopeless(costs[number], costs)}
        num_rounds = 0 if len(hopeless) == len(costs) - 1 else _ROUNDS
        for _ in range(num_rounds):
            # The one in use first: the others are compared with it.
            for number in sorted(self._candidates, key=lambda each: each != before):
                if number in hopeless:
                    continue
                self._set(number)
                for unit in range(_UNITS_PER_ROUND + 1):
                    yield
                    if unit:
                        costs[number].append(self._measured)
                    if _is_hopeless([self._measured], costs):
                        costs[number].append(self._measured)
                        hopeless.add(number)
                        break
        self._decide({number: fmean(c) for number, c in costs.items()}, before)

    def _glimpse(self, costs: dict[int, list[float]]) -> Iterator[None]:
        """Time a single unit of each, from one thread up, after one that is not counted.

        The very first work is slower than usual. Beside other processes one thread loses only their
        share of the time, while many threads may take ten times as long as one.
        """
        self._set(self._candidates[0])
        yield
        for number in self._candidates:
            self._set(number)
            yield
            costs[number].append(self._measured)

    def _decide(self, costs: dict[int, float], before: int) -> None:
        best = min(costs, key=lambda number: costs[number])
        chosen = best if costs[best] * _MIN_GAIN < costs[before] else before
        self._set(chosen)
        self._has_chosen = True
        self._wait = _MIN_SECONDS if chosen != before else min(2 * self._wait, _MAX_SECONDS)
        lost = self._spent - self._done * costs[chosen]
        self._next_trial = self._clock() + max(self._wait, lost / _MAX_LOST_SHARE)
        self._cost = self._usual_cost = costs[chosen]

    def _set(self, number: int) -> None:
        if number != self.number:
            self._use(number)
            self.number = number


def _is_hopeless(numbers: list[float], costs: dict[int, list[float]]) -> bool:
    best = min((fmean(c) for c in costs.values() if c), default=float("inf"))
    return bool(numbers) and fmean(numbers) > _HOPELESS_RATIO * best


def resolve_num_workers(num_workers: int | None) -> int:
    """Check the number of threads that was asked for, by default one for each core."""
    require_at_least(1, num_workers=num_workers)
    return num_workers or available_cores()


def map_in_order(
    function: Callable[[Item], Outcome], items: Iterable[Item], num_workers: int
) -> Iterator[Outcome]:
    """Yield results in order, computed by threads that run kernels without the GIL.

    Items are made in the calling thread, and only a few are under way at a time. After an error,
    nothing new is started.
    """
    if num_workers <= 1:
        yield from map(function, items)
        return
    pool = ThreadPoolExecutor(num_workers)
    under_way: deque[Future[Outcome]] = deque()
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
    """Objects of which each belongs to one thread at a time, made when none is idle."""

    def __init__(self, make: Callable[[], Item]) -> None:
        self.members: list[Item] = []
        self._make = make
        self._idle: list[Item] = []
        self.give_back = self._idle.append  # not a method: encoding a short text calls it

    def take(self) -> Item:
        """Return one that no other thread uses until it is given back."""
        try:
            return self._idle.pop()
        except IndexError:
            member = self._make()
            self.members.append(member)
            return member

    @contextmanager
    def borrow(self) -> Iterator[Item]:
        """Take one for the block."""
        member = self.take()
        try:
            yield member
        finally:
            self.give_back(member)


# OpenMP gives every thread that computes helpers of its own, and keeps them while that thread
# lives. Once there are more helpers than cores, they stop spinning while they wait for work: the
# hundred short pieces of a decoding step then take up to three times as long. So in a program with
# an engine, all other heavy work runs in threads that end with it.


def in_short_thread(job: Callable[[], Outcome]) -> Outcome:
    """Run a job in a thread that ends with it, and return or raise what it does."""
    with ThreadPoolExecutor(1, "job") as pool:
        return pool.submit(job).result()


async def in_short_thread_async(job: Callable[[], Outcome]) -> Outcome:
    """Do the same for an event loop, which continues meanwhile."""
    import asyncio

    pool = ThreadPoolExecutor(1, "job")
    try:
        return await asyncio.get_running_loop().run_in_executor(pool, job)
    finally:
        pool.shutdown(wait=False)
