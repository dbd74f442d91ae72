"""Schedules against their formulas, at every step and at the edges."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafo.optim import constant, inverse_square_root, warmup_cosine, warmup_stable_decay


def test_cosine_by_hand() -> None:
    rates = [warmup_cosine(t, 1.0, 0.1, 4, 8) for t in range(11)]
    down = [0.1 + 0.45 * (1 + math.cos(math.pi * k / 4)) for k in range(4)]
    assert rates == pytest.approx([0.0, 0.25, 0.5, 0.75, *down, 0.1, 0.1, 0.1])
    assert rates[4] == 1.0


@given(
    warmup=st.integers(0, 50), more=st.integers(0, 50), t=st.integers(0, 200), low=st.floats(0, 1)
)
def test_cosine_stays_between_its_ends(warmup: int, more: int, t: int, low: float) -> None:
    rate = warmup_cosine(t, 1.0, low, warmup, warmup + more)
    assert 0 <= rate <= 1
    if t >= warmup + more:
        assert rate == low
    elif t >= warmup:
        assert rate >= low - 1e-12


def test_cosine_without_warm_up_starts_at_the_top() -> None:
    assert warmup_cosine(0, 0.3, 0.0, 0, 10) == 0.3
    with pytest.raises(ValueError, match="warmup_steps"):
        warmup_cosine(0, 0.3, 0.0, 11, 10)


@given(t=st.integers(1, 100_000), warmup=st.integers(1, 10_000), d_model=st.integers(1, 4096))
def test_the_papers_schedule(t: int, warmup: int, d_model: int) -> None:
    expected = 1 / math.sqrt(d_model) * min(1 / math.sqrt(t), t / warmup**1.5)
    assert inverse_square_root(t, d_model, warmup) == pytest.approx(expected, rel=1e-12)
    # both branches meet at the end of the warm-up, which is the top
    assert inverse_square_root(t, d_model, warmup) <= inverse_square_root(
        warmup, d_model, warmup
    ) * (1 + 1e-12)


def test_the_papers_schedule_has_a_rate_for_step_0() -> None:
    assert inverse_square_root(0, 512, 4000) == inverse_square_root(1, 512, 4000)


def test_warm_up_stable_decay_by_hand() -> None:
    rates = [warmup_stable_decay(t, 2.0, 2, 4, 10) for t in range(12)]
    assert rates == [0.0, 1.0, 2.0, 2.0, 2.0, 2.0, 2.0, 1.5, 1.0, 0.5, 0.0, 0.0]
    with pytest.raises(ValueError, match="warmup_steps"):
        warmup_stable_decay(0, 1.0, 7, 4, 10)


@given(total=st.integers(1, 60), data=st.data())
def test_warm_up_stable_decay_ends_at_zero(total: int, data: st.DataObject) -> None:
    decay = data.draw(st.integers(0, total))
    warmup = data.draw(st.integers(0, total - decay))
    rates = [warmup_stable_decay(t, 1.0, warmup, decay, total) for t in range(total + 1)]
    assert rates[-1] == 0.0
    assert max(rates) <= 1.0
    assert all(rates[t] == 1.0 for t in range(warmup, total - decay))


@given(t=st.integers(0, 10**9), lr=st.floats(0, 1))
def test_constant(t: int, lr: float) -> None:
    assert constant(t, lr) == lr
