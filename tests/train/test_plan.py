"""How many steps, how often what, and how a budget of time becomes both."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.train.conftest import MakeConfig

from trafo.optim.config import ScheduleConfig
from trafo.train import start
from trafo.train.build import build
from trafo.train.config import CheckpointConfig, TrainConfig, WatchConfig
from trafo.train.distributed import Ranks
from trafo.train.metrics import read_metrics
from trafo.train.plan import Plan, seconds_per_step, steps_that_fit

positive = st.integers(1, 10_000)


def test_what_is_left_open_follows_from_the_steps() -> None:
    """20 validations, 4 samples, 10 checkpoints; validating takes 1.5 % of the time."""
    config = TrainConfig(batch_size=16, context_length=256)
    plan = Plan.of(config, 1000)
    assert (plan.evaluate_every, plan.sample_every, plan.checkpoint_every) == (50, 250, 100)
    assert plan.evaluate_tokens == round(0.015 * 50 * 16 * 256 * 3)
    short = Plan.of(config, 3)
    assert (short.evaluate_every, short.sample_every, short.checkpoint_every) == (1, 1, 1)
    assert short.evaluate_tokens == 4 * 256  # a few windows at least


def test_what_is_given_is_kept() -> None:
    watch = WatchConfig(evaluate_every=7, evaluate_tokens=99, sample_every=0)
    plan = Plan.of(TrainConfig(watch=watch, checkpoint=CheckpointConfig(every=5)), 1000)
    assert plan == Plan(
        steps=1000, evaluate_every=7, sample_every=0, checkpoint_every=5, evaluate_tokens=99
    )


@given(steps=positive, every=positive)
def test_everything_is_due_at_the_last_step_and_each_so_many(steps: int, every: int) -> None:
    plan = Plan(
        steps=steps, evaluate_every=1, sample_every=1, checkpoint_every=1, evaluate_tokens=1
    )
    assert plan.is_due(every, steps)
    due = [step for step in range(1, steps + 1) if plan.is_due(every, step)]
    assert due == sorted({*range(every, steps + 1, every), steps})
    assert not any(plan.is_due(0, step) for step in (1, steps))


@given(seconds=st.floats(0, 1e6), per_step=st.floats(1e-4, 1e3), step=positive)
def test_steps_fit_into_the_time(seconds: float, per_step: float, step: int) -> None:
    steps = steps_that_fit(seconds, per_step)
    assert steps * per_step <= seconds * (1 + 1e-9)
    assert (steps + 1) * per_step > seconds * (1 - 1e-9)
    plan = Plan(steps=5, evaluate_every=2, sample_every=3, checkpoint_every=4, evaluate_tokens=6)
    corrected = plan.corrected(step, seconds, per_step)
    assert corrected.steps == step + max(1, steps)
    assert corrected.evaluate_every == 2


def test_time_that_is_over_leaves_one_step() -> None:
    plan = Plan(steps=50, evaluate_every=2, sample_every=3, checkpoint_every=4, evaluate_tokens=6)
    assert plan.corrected(10, -5.0, 0.1).steps == 11
    assert plan.corrected(10, 10.0, 0.125).steps == 10 + 80


def test_trying_steps_leaves_no_trace(make_config: MakeConfig) -> None:
    tried, untried = (build(make_config(name, model__dropout=0.1), Ranks()) for name in ("a", "b"))
    assert seconds_per_step(tried, budget=1.0) > 0
    assert not any(optimizer.state for optimizer in tried.optimizers)
    ours, theirs = tried.model.state_dict(), untried.model.state_dict()
    assert all(ours[name].equal(theirs[name]) for name in ours)
    assert tried.stepper.run(0, 1.0) == untried.stepper.run(0, 1.0)


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_a_run_with_a_budget_ends_at_the_floor(make_config: MakeConfig, schedule: str) -> None:
    """In about its time; here only that it is nowhere near a multiple of it."""
    config = make_config(
        budget="3s",
        optimizer__name="muon",
        optimizer__schedule=ScheduleConfig(name=schedule),  # type: ignore[arg-type]
        watch__log_every=7,
    )
    started = time.perf_counter()
    assert start.train(config) == 0
    assert time.perf_counter() - started < 30
    assert config.out is not None
    records = [r for r in read_metrics(config.out / "metrics.jsonl") if r["kind"] == "train"]
    rates = [record["lr"] for record in records]
    assert rates[-1] == pytest.approx((0.1 if schedule == "cosine" else 0.0) * 3e-3)
    assert rates[-1] == min(rates[1:])
    assert records[-1]["seconds"] > 1
    assert records[-1]["step"] > 10
