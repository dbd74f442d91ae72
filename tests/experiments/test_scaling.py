"""The scaling law: recovered from losses that follow one, and held to scipy's fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import least_squares, minimize_scalar

import trafo
from trafo.errors import InputError
from trafo.experiments.scaling import Law, Observation, bootstrap, fit, percentile_interval

CHINCHILLA = Law(E=1.69, A=406.4, a=0.34, B=410.7, b=0.28)
GRID = [(n, d) for n in (1e4, 3e4, 1e5, 3e5) for d in (1e5, 3e5, 1e6, 3e6)]


def observed(law: Law, noise: float = 0.0, seed: int = 0) -> list[Observation]:
    chance = np.random.default_rng(seed)
    return [(n, d, law.loss(n, d) + noise * chance.standard_normal()) for n, d in GRID]


@settings(max_examples=15)
@given(st.floats(0.5, 3), st.floats(0.2, 0.7), st.floats(0.2, 0.7), st.floats(0.5, 3))
def test_a_law_is_found_again(constant: float, a: float, b: float, size: float) -> None:
    law = Law(E=constant, A=size * 1e5**a, a=a, B=size * 5e5**b, b=b)
    found = fit(observed(law))
    for n, d in [*GRID, (6e5, 6e6)]:
        assert found.loss(n, d) == pytest.approx(law.loss(n, d), rel=1e-5)
    assert (found.a, found.b) == pytest.approx((a, b), abs=1e-4)


def test_with_noise_the_error_is_as_small_as_scipys() -> None:
    rows = np.array(observed(CHINCHILLA, noise=0.02, seed=3))

    def residuals(p: np.ndarray) -> np.ndarray:
        e, log_a, a, log_b, b = p
        predicted = e + np.exp(log_a) / rows[:, 0] ** a + np.exp(log_b) / rows[:, 1] ** b
        return predicted - rows[:, 2]

    theirs = least_squares(residuals, [1.0, 5.0, 0.3, 5.0, 0.3], max_nfev=5000)
    law = fit([tuple(row) for row in rows])
    ours = sum((law.loss(n, d) - loss) ** 2 for n, d, loss in rows)
    assert ours <= 2 * theirs.cost * 1.0001


def test_the_best_size_is_where_the_loss_is_lowest() -> None:
    for flops in (1e12, 1e15):
        best = CHINCHILLA.best_size(flops)
        assert best is not None
        numeric = minimize_scalar(
            lambda log_n, c=flops: CHINCHILLA.loss(np.exp(log_n), c / (6 * np.exp(log_n))),
            bounds=(1, 40),
            method="bounded",
            options={"xatol": 1e-8},
        )
        assert best == pytest.approx(np.exp(numeric.x), rel=1e-3)
    assert Law(E=1, A=0, a=0.3, B=1, b=0.3).best_size(1e12) is None


def test_bootstrap_intervals_hold_the_truth_and_shrink_with_the_noise() -> None:
    widths = []
    for noise in (0.02, 0.002):
        laws = bootstrap(observed(CHINCHILLA, noise, seed=1), resamples=40)
        low, high = percentile_interval([law.loss(1e6, 1e7) for law in laws])
        truth = CHINCHILLA.loss(1e6, 1e7)
        assert low - 5 * noise < truth < high + 5 * noise
        widths.append(high - low)
    assert widths[1] < widths[0]


@pytest.mark.parametrize(
    ("points", "count"),
    [
        ([(1e3, 1e5), (1e3, 1e6)], 2),
        ([(1e3, 1e5), (2e3, 2e5), (3e3, 3e5)], 3),
        ([(n, d) for n in (1e3, 2e3) for d in (1e5, 2e5, 4e5, 8e5)], 8),
        # The third size and length never meet the others: their terms could be anything.
        ([(1e3, 1e5), (1e3, 2e5), (2e3, 1e5), (2e3, 2e5), (3e3, 3e5)], 5),
    ],
)
def test_a_law_that_does_not_follow_is_refused(points: list[Any], count: int) -> None:
    """However many seeds there are."""
    observations = [(n, d, CHINCHILLA.loss(n, d)) for n, d in points for _ in range(3)]
    with pytest.raises(InputError, match=rf"not identifiable: {count} distinct .* 5 parameters"):
        fit(observations)


def test_the_fewest_points_that_determine_a_law() -> None:
    points = [(n, d) for n in (1e4, 1e5, 1e6) for d in (1e5, 1e6, 1e7)]
    law = fit([(n, d, CHINCHILLA.loss(n, d)) for n, d in points])
    assert law.loss(3e5, 3e6) == pytest.approx(CHINCHILLA.loss(3e5, 3e6), rel=1e-5)
    assert (law.a, law.b) == pytest.approx((CHINCHILLA.a, CHINCHILLA.b), abs=1e-4)


def test_a_grid_without_a_law_is_refused_before_it_is_trained(
    base: dict[str, Any], tmp_path: Path
) -> None:
    asked = {"base": base, "sweep": {"steps": [8, 12, 20]}, "seeds": 3, "scaling": {"factor": 2}}
    with pytest.raises(InputError, match=r"3 distinct points \(1 sizes, 3 lengths\) for 5 param"):
        trafo.experiment(asked, base["text"], out=tmp_path / "sizes")
    assert not (tmp_path / "sizes").exists()
