"""Threads: every item once, errors raised, nobody waits for ever, never much is under way."""

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from trafo.errors import InputError
from trafo.tokenizer.reading.workers import checked_workers, default_workers, feed, map_in_order

PATIENCE = 20.0  # seconds until a test is taken for stuck


def in_time(function: Callable[[], Any]) -> Any:
    """The function's result or error, or a failure if it takes for ever."""
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
    results.close()  # whoever stops asking is not kept waiting


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


@pytest.mark.parametrize("num_consumers", [1, 2, 5])
def test_every_item_is_consumed_once_each_consumer_in_one_thread(num_consumers: int) -> None:
    eaten: list[list[tuple[int, int]]] = [[] for _ in range(num_consumers)]

    def eats_into(plate: list[tuple[int, int]]) -> Callable[[int], None]:
        return lambda number: plate.append((sleepy_square(number), threading.get_ident()))

    in_time(lambda: feed(range(300), [eats_into(plate) for plate in eaten]))
    squares = sorted(square for plate in eaten for square, _ in plate)
    assert squares == [number * number for number in range(300)]
    assert all(len({thread for _, thread in plate}) <= 1 for plate in eaten)


@pytest.mark.parametrize("num_consumers", [1, 2, 5])
def test_the_producer_waits_for_the_consumers(num_consumers: int) -> None:
    producer = Producer(200)
    consumed = 0
    ahead: list[int] = []
    lock = threading.Lock()

    def consume(_: int) -> None:
        nonlocal consumed
        time.sleep(0.001)
        with lock:
            consumed += 1
            ahead.append(producer.made - consumed)

    in_time(lambda: feed(producer, [consume] * num_consumers))
    assert consumed == 200
    assert max(ahead) <= 2 * num_consumers + 1


@pytest.mark.parametrize("num_consumers", [1, 2, 5])
def test_the_error_of_a_consumer_ends_it(num_consumers: int) -> None:
    producer = Producer(100_000)

    def consume(number: int) -> None:
        if number == 10:
            raise LookupError("consumer")

    with pytest.raises(LookupError, match="consumer"):
        in_time(lambda: feed(producer, [consume] * num_consumers))
    assert producer.made < 100_000


@pytest.mark.parametrize("num_consumers", [1, 2, 5])
def test_all_consumers_fail_at_once(num_consumers: int) -> None:
    def consume(_: int) -> None:
        raise LookupError("consumer")

    with pytest.raises(LookupError, match="consumer"):
        in_time(lambda: feed(range(1000), [consume] * num_consumers))


@pytest.mark.parametrize("num_consumers", [1, 2, 5])
@pytest.mark.parametrize("error", [LookupError, KeyboardInterrupt])
def test_the_error_of_the_producer_is_raised_when_all_is_consumed(
    num_consumers: int, error: type[BaseException]
) -> None:
    consumed: list[int] = []

    def items() -> Iterator[int]:
        yield from range(20)
        raise error

    with pytest.raises(error):
        in_time(lambda: feed(items(), [consumed.append] * num_consumers))
    assert threading.active_count() < 20
    assert set(consumed) <= set(range(20))


def test_nothing_to_do() -> None:
    in_time(lambda: feed([], [print, print]))
    assert in_time(lambda: list(map_in_order(sleepy_square, [], 3))) == []


def test_the_number_of_workers() -> None:
    assert checked_workers(None) == default_workers() >= 1
    assert checked_workers(3) == 3
    for wrong in (0, -1):
        with pytest.raises(InputError, match="at least 1"):
            checked_workers(wrong)
