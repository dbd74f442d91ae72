"""Intervals and paired differences, held to scipy."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from trafo.experiments.results import Estimate, estimate, paired_difference

numbers = st.floats(-100, 100).map(lambda x: round(x, 6))


def test_quantiles_are_those_of_the_printed_tables() -> None:
    table = {1: 12.706, 2: 4.303, 4: 2.776, 9: 2.262, 30: 2.042}
    for degrees, value in table.items():
        values = [float(i % 2) for i in range(degrees + 1)]
        found = estimate(values)
        assert found is not None
        assert found.half_width == pytest.approx(value * stats.sem(values), rel=3e-4)


@given(st.lists(numbers, min_size=2, max_size=9))
def test_intervals_are_scipys(values: list[float]) -> None:
    found = estimate(values)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    scale = stats.sem(values)
    low, high = (
        stats.t.interval(0.95, len(values) - 1, loc=sum(values) / len(values), scale=scale)
        if scale
        else (found.mean, found.mean)
    )
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-7)


@given(st.dictionaries(st.integers(0, 5), st.tuples(numbers, numbers), min_size=2))
def test_paired_differences_are_the_paired_t_test(pairs: dict[int, tuple[float, float]]) -> None:
    ours = {seed: pair[0] for seed, pair in pairs.items()} | {99: 1.0}
    theirs = {seed: pair[1] for seed, pair in pairs.items()} | {98: 1.0}
    found = paired_difference(ours, theirs)
    assert found is not None
    differences = [a - b for a, b in pairs.values()]
    assert found.count == len(pairs)
    if max(differences) - min(differences) > 1e-3:
        test = stats.ttest_rel(*zip(*pairs.values(), strict=True))
        interval = test.confidence_interval(0.95)
        assert found.low == pytest.approx(interval.low, abs=1e-7)
        assert found.high == pytest.approx(interval.high, abs=1e-7)
        if abs(test.pvalue - 0.05) > 1e-6:
            assert found.excludes_zero == (test.pvalue < 0.05)


def test_one_number_has_no_interval_and_none_has_no_mean() -> None:
    assert estimate([2.5]) == Estimate(2.5, None, 1)
    assert not Estimate(2.5, None, 1).excludes_zero
    assert estimate([]) is None
    assert paired_difference({0: 1.0}, {1: 1.0}) is None
    assert math.isclose(estimate([1.0, 1.0]).half_width or 0.0, 0.0)  # type: ignore[union-attr]
