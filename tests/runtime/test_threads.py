"""Threads: the fastest number is found, work keeps its order, and short threads end."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trafo.errors import ConfigError
from trafo.runtime.machine import available_cores
from trafo.runtime.threads import (
    Pool,
    ThreadChooser,
    in_short_thread,
    in_short_thread_async,
    map_in_order,
    resolve_num_workers,
)


class Machine:
    """One on which a unit of work takes `cost[number]` seconds with so many threads."""

    def __init__(self, cost, most):
        self.cost = cost
        self.now = 0.0
        self.in_use = most
        self.threads = ThreadChooser(most, self.use, lambda: self.now)

    def use(self, number):
        self.in_use = number

    def work(self, units, size=1.0):
        """Seconds that so many units took."""
        start = self.now
        for _ in range(units):
            with self.threads.timed(size):
                self.now += size * self.cost[self.in_use]
        return self.now - start


@given(st.lists(st.floats(0.01, 10), min_size=4, max_size=4), st.sampled_from([1, 2, 3, 4]))
def test_the_fastest_is_found(costs, most):
    numbers = sorted({1, 2, most} & set(range(1, most + 1)))
    cost = dict(zip(numbers, costs, strict=False))
    machine = Machine(cost, most)
    machine.work(30)
    while machine.threads._trial:
        machine.work(1)
    assert cost[machine.in_use] <= 1.06 * min(cost.values())
    assert machine.in_use == machine.threads.number


def test_the_candidates_are_powers_of_two_and_all():
    tried = []
    machine = Machine(dict.fromkeys(range(1, 13), 1.0), 12)
    machine.threads._use = lambda number: (tried.append(number), machine.use(number))
    machine.work(30)
    assert set(tried) <= {1, 2, 4, 8, 12}
    assert {1, 2, 4, 8} <= set(tried)


def test_one_thread_is_left_alone():
    machine = Machine({1: 1.0}, 1)
    machine.threads._use = pytest.fail
    machine.work(100)
    assert machine.threads._trial is None


@pytest.mark.parametrize(("step", "units"), [(0.001, 100_000), (0.1, 2000), (3.0, 4000)])
def test_another_busy_process_comes_and_goes(step, units):
    """Beside it two threads take ten times as long as one, as it was measured."""
    quiet, busy = {1: 2 * step, 2: step}, {1: 2 * step, 2: 20 * step}
    machine = Machine(dict(quiet), 2)
    machine.work(20)
    assert machine.in_use == 2
    for now in (busy, quiet, busy):
        machine.cost.update(now)
        best = min(now.values())
        # Between two changes of the machine, finding out costs at most a fifth.
        assert machine.work(units) * 0.8 < units * best
        assert now[machine.in_use] == best


def test_the_first_trial_is_short_where_threads_fight():
    """Two threads take ten times as long: they do one unit of work, and no more."""
    machine = Machine({1: 1.0, 2: 10.0}, 2)
    assert machine.work(60) < 60 / 0.8
    assert machine.in_use == 1


def test_the_first_trial_is_short_where_threads_help():
    """On 64 cores one thread does two units, and others that are far too slow do one."""
    machine = Machine({2**i: 64.0 / 2**i for i in range(7)}, 64)
    assert machine.work(20) < 64 * 5
    assert machine.in_use == 64


def test_trying_costs_little_when_nothing_changes():
    machine = Machine({1: 1.0, 2: 12.0}, 2)
    machine.work(12)
    assert machine.in_use == 1
    assert machine.work(3000) < 3000 * 1.06


def test_units_may_differ_in_size():
    machine = Machine({1: 1.0, 2: 0.6}, 2)
    for size in (1, 5, 2, 8, 1, 3, 9, 1, 4, 2, 7, 1, 3, 3, 6, 2):
        machine.work(1, size)
    assert machine.in_use == 2


def test_all_of_them_for_a_while():
    machine = Machine({1: 1.0, 2: 5.0}, 2)
    machine.work(20)
    with machine.threads.all_of_them():
        assert machine.in_use == 2
    assert machine.in_use == 1


def test_a_callback_that_is_told_of_work_is_watched():
    machine, told = Machine({1: 1.0, 2: 5.0}, 2), []
    advance = machine.threads.watching(told.append)
    for _ in range(20):
        machine.now += 4 * machine.cost[machine.in_use]
        advance(4)
    assert told == [4] * 20
    assert machine.in_use == 1


PATIENCE = 20.0  # seconds until a test is taken for stuck


def in_time(function: Callable[[], Any]) -> Any:
    """The function's result or error, or a failure if it hangs."""
    outcome: list[Any] = []

    def run() -> None:
        try:
            outcome.append((function(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert outcome, "stuck"
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


class Producer:
    """Counts how many numbers were asked for; may fail at one of them."""

    def __init__(self, stop: int, fails_at: int = -1) -> None:
        self.made = 0
        self._stop = stop
        self._fails_at = fails_at

    def __iter__(self) -> Iterator[int]:
        for number in range(self._stop):
            if number == self._fails_at:
                raise LookupError("producer")
            self.made += 1
            yield number


def sleepy_square(number: int) -> int:
    time.sleep(0.002 if number % 3 == 0 else 0)
    return number * number


@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_results_come_in_order(num_workers: int) -> None:
    squares = in_time(lambda: list(map_in_order(sleepy_square, range(100), num_workers)))
    assert squares == [number * number for number in range(100)]


@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_few_items_are_under_way(num_workers: int) -> None:
    producer = Producer(1000)
    results = map_in_order(sleepy_square, producer, num_workers)
    for asked in range(1, 50):
        assert in_time(lambda: next(results)) == (asked - 1) ** 2
        assert producer.made <= asked + 2 * num_workers
    results.close()  # a caller that stops early does not have to wait


@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_errors_of_the_function_come_in_their_place(num_workers: int) -> None:
    def fails_at_seven(number: int) -> int:
        if number == 7:
            raise LookupError("seven")
        return number

    results = map_in_order(fails_at_seven, Producer(1000), num_workers)
    assert in_time(lambda: [next(results) for _ in range(7)]) == list(range(7))
    with pytest.raises(LookupError, match="seven"):
        in_time(lambda: next(results))


@pytest.mark.parametrize("num_workers", [1, 2, 5])
def test_errors_of_the_items_are_raised(num_workers: int) -> None:
    with pytest.raises(LookupError, match="producer"):
        in_time(lambda: list(map_in_order(sleepy_square, Producer(100, 50), num_workers)))


@pytest.mark.parametrize("num_workers", [2, 5])
@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt])
def test_no_thread_is_left_after_an_error(num_workers: int, error: type[BaseException]) -> None:
    def items() -> Iterator[int]:
        yield from range(20)
        raise error

    before = threading.active_count()
    with pytest.raises(error):
        list(map_in_order(sleepy_square, items(), num_workers))
    assert threading.active_count() == before


def test_nothing_new_is_begun_after_an_error() -> None:
    begun: list[int] = []

    def fails_at_once(number: int) -> None:
        begun.append(number)
        time.sleep(0.01)
        raise LookupError("function")

    producer = Producer(1000)
    with pytest.raises(LookupError, match="function"):
        in_time(lambda: list(map_in_order(fails_at_once, producer, 2)))
    assert producer.made == 5  # two under way and their like waiting, and one more
    assert len(begun) < 5


def test_nothing_to_do() -> None:
    assert in_time(lambda: list(map_in_order(sleepy_square, [], 3))) == []


def test_the_number_of_workers() -> None:
    assert resolve_num_workers(None) == available_cores() >= 1
    assert resolve_num_workers(3) == 3
    for wrong in (0, -1):
        with pytest.raises(ConfigError, match="at least 1"):
            resolve_num_workers(wrong)


def test_a_pool_makes_no_more_than_are_used_at_once() -> None:
    pool: Pool[list[int]] = Pool(list)

    def use(number: int) -> None:
        with pool.borrow() as member:
            size = len(member)
            time.sleep(0.001)
            assert len(member) == size  # no other thread has it
            member.append(number)

    in_time(lambda: list(map_in_order(use, range(60), 3)))
    assert 1 <= len(pool.members) <= 3
    assert sorted(number for member in pool.members for number in member) == list(range(60))


def test_a_member_comes_back_after_an_error() -> None:
    pool: Pool[list[int]] = Pool(list)
    with pytest.raises(LookupError), pool.borrow():
        raise LookupError
    with pool.borrow():
        pass
    assert len(pool.members) == 1


THREADS = Path("/proc/self/task")


def num_threads():
    return sum(1 for _ in THREADS.iterdir())


def compute():
    """Enough for OpenMP to start its threads."""
    torch.ones(1_000_000).add(1).sum()
    return threading.current_thread().name


def in_event_loop(job):
    return asyncio.run(in_short_thread_async(job))


def test_returns_and_raises():
    assert in_short_thread(lambda: 7) == 7
    assert in_event_loop(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        in_short_thread(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        in_event_loop(lambda: 1 // 0)


@pytest.mark.skipif(not THREADS.exists(), reason="counts threads by /proc")
@pytest.mark.parametrize("run", [in_short_thread, in_event_loop])
def test_no_thread_is_left(run):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        threads = num_threads()
        assert run(compute) != threading.current_thread().name
        until = time.monotonic() + 10
        while num_threads() > threads and time.monotonic() < until:
            time.sleep(0.01)
        assert num_threads() <= threads
    finally:
        torch.set_num_threads(before)
