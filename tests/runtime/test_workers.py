"""Threads: every item once, errors raised, nothing hangs, only a few items are under way."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trafo.errors import InputError
from trafo.runtime.workers import Pool, checked_workers, default_workers, map_in_order

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
    assert checked_workers(None) == default_workers() >= 1
    assert checked_workers(3) == 3
    for wrong in (0, -1):
        with pytest.raises(InputError, match="at least 1"):
            checked_workers(wrong)


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
