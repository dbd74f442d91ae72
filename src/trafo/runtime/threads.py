"""The number of threads for repeated work: tried at the start, watched, changed when it pays.

Two threads that wait for each other at every step compete with another busy process for the cores:
then one thread is several times as fast. This cannot be predicted, so the work itself is timed.

    threads = ThreadChooser(most=8, use=set_num_threads)
    for batch in batches:
        with threads.timed():
            work(batch)

Each candidate (1, 2, 4, ... up to all) does a few units of work, in turns. The fastest is used; one
that is twice as slow as another is dropped at once. They are tried again when the work becomes
slower, and from time to time, for at most 5 % of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter

_ROUNDS = 2
_UNITS = 2  # timed of each candidate in a round, after one that wakes its threads up
_HOPELESS = 2.0  # times as slow as the best one: dropped from this trial
_GAIN = 1.05  # a change must pay at least this much
_SLOWER = 1.5  # times as slow as when it was chosen: try again
_SHARE = 0.05  # of the time may be lost by trying
_SHORTEST, _LONGEST = 2.0, 60.0  # seconds until the next trial
_SMOOTHING = 8  # units


class ThreadChooser:
    """Chooses among 1, 2, 4, ... and `most` threads; `use` sets the number."""

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
        self._wait, self._next_trial = _SHORTEST, 0.0
        self._has_chosen = False
        self._trial: Iterator[None] | None = None  # while candidates are compared
        self._begin_trial()

    @contextmanager
    def timed(self, work: float = 1.0) -> Iterator[None]:
        """One unit of work; `work` says how large it is, compared with others."""
        start = self._clock()
        yield
        self.add(self._clock() - start, work)

    def watching(self, advance: Callable[[int], object]) -> Callable[[int], None]:
        """`advance`, which is told of work that is done, and the time since its last call."""
        begun = self._clock()

        def done(work: int) -> None:
            nonlocal begun
            self.add(self._clock() - begun, max(1, work))
            advance(work)
            begun = self._clock()

        return done

    def add(self, seconds: float, work: float = 1.0) -> None:
        """A unit of work is done; changes the number of threads if that is due."""
        if len(self._candidates) == 1:
            return
        self._measured = seconds / work
        if self._trial is not None:
            self._spent, self._done = self._spent + seconds, self._done + work
            if next(self._trial, self) is self:
                self._trial = None
            return
        self._usual_cost += (self._measured - self._usual_cost) / _SMOOTHING
        is_slower = self._usual_cost > _SLOWER * self._cost
        if self._clock() >= self._next_trial - (self._wait / 2 if is_slower else 0):
            self._begin_trial()

    @property
    def is_trying(self) -> bool:
        """Whether the next unit of work compares numbers of threads."""
        return self._trial is not None

    @contextmanager
    def all_of_them(self) -> Iterator[None]:
        """As many threads as there may be, for the block."""
        number = self.number
        self._set(self._candidates[-1])
        yield
        self._set(number)

    def _begin_trial(self) -> None:
        self._spent = self._done = 0.0
        if len(self._candidates) > 1:
            self._trial = self._tried()
            next(self._trial)

    def _tried(self) -> Iterator[None]:
        """Yields once for each unit of work that a trial needs."""
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
                for unit in range(_UNITS + 1):
                    yield
                    if unit:
                        costs[number].append(self._measured)
                    if _is_hopeless([self._measured], costs):
                        costs[number].append(self._measured)
                        hopeless.add(number)
                        break
        self._decide({number: _mean(c) for number, c in costs.items()}, before)

    def _glimpse(self, costs: dict[int, list[float]]) -> Iterator[None]:
        """A single unit of each, from one thread up, after one that is not counted.

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
        chosen = best if costs[best] * _GAIN < costs[before] else before
        self._set(chosen)
        self._has_chosen = True
        self._wait = _SHORTEST if chosen != before else min(2 * self._wait, _LONGEST)
        lost = self._spent - self._done * costs[chosen]
        self._next_trial = self._clock() + max(self._wait, lost / _SHARE)
        self._cost = self._usual_cost = costs[chosen]

    def _set(self, number: int) -> None:
        if number != self.number:
            self._use(number)
            self.number = number


def _is_hopeless(numbers: list[float], costs: dict[int, list[float]]) -> bool:
    best = min((_mean(c) for c in costs.values() if c), default=float("inf"))
    return bool(numbers) and _mean(numbers) > _HOPELESS * best


def _mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)
