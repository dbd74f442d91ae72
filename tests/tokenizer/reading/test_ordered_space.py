"""Places in the order of numbers, whichever thread comes first."""

import itertools
import random
import time

import pytest

from trafo.tokenizer.reading.workers import OrderedSpace, map_in_order


def test_places_follow_the_numbers() -> None:
    sizes = [random.Random(0).randrange(50) for _ in range(60)]
    space = OrderedSpace()

    def reserve(part: tuple[int, int]) -> int:
        number, size = part
        time.sleep(0.002 if number % 3 == 0 else 0)  # so that some would overtake
        return space.reserve(number, size)

    offsets = list(map_in_order(reserve, enumerate(sizes), num_workers=4))
    assert offsets == [0, *itertools.accumulate(sizes)][:-1]
    assert space.size == sum(sizes)


def test_one_failure_ends_the_waiting_of_all() -> None:
    space = OrderedSpace()

    def reserve(number: int) -> int:
        with space.failing_together():
            if number == 2:
                raise ValueError("part 2")
            return space.reserve(number, 1)

    with pytest.raises(ValueError, match="part 2"):
        list(map_in_order(reserve, range(20), num_workers=3))
