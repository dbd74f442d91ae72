"""The fastest number of threads is found, kept, and found again when the machine changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafo.runtime.threads import ThreadChooser


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
