"""How many steps, how often what, and how a budget of time becomes both."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.train.conftest import MakeConfig

from trafo.checkpoint.store import CheckpointStore
from trafo.optim.config import ScheduleConfig
from trafo.train import loop, plan, start
from trafo.train.build import build
from trafo.train.config import CheckpointConfig, TrainConfig, WatchConfig
from trafo.train.distributed import Ranks
from trafo.train.plan import Plan, steps_that_fit, try_steps
from trafo.train.step import Training

positive = st.integers(1, 10_000)


class Windows:
    """What a plan asks a task: 16 windows of 256 tokens in a step."""

    tokens_per_step = 16 * 256
    fewest_validation_tokens = 4 * 256


def plan_of(config: TrainConfig, steps: int) -> Plan:
    return Plan.of(config, steps, Windows())  # type: ignore[arg-type]


def intervals(found: Plan) -> tuple[int, int, int]:
    return found.evaluate_every, found.sample_every, found.checkpoint_every


@given(steps=st.integers(1, 100_000))
def test_what_is_left_open_follows_from_the_steps(steps: int) -> None:
    """About 20 validations, 4 samples and 10 checkpoints, each of weights that were measured."""
    found = plan_of(TrainConfig(), steps)
    for every, times in zip(intervals(found), (20, 4, 10), strict=True):
        assert times / 2 <= steps / every <= 2 * times or (steps < times and every == 1)
    assert found.checkpoint_every % found.evaluate_every == 0


@given(steps=st.integers(1, 100_000))
def test_validations_take_a_small_share_of_the_time(steps: int) -> None:
    """A forward pass is a third of a step. Below a few windows the figure would say nothing."""
    found = plan_of(TrainConfig(), steps)
    share = found.evaluate_tokens / 3 / (found.evaluate_every * Windows.tokens_per_step)
    assert share < 0.02 or found.evaluate_tokens == Windows.fewest_validation_tokens


def test_what_is_given_is_kept() -> None:
    watch = WatchConfig(evaluate_every=7, evaluate_tokens=99, sample_every=0)
    found = plan_of(TrainConfig(watch=watch, checkpoint=CheckpointConfig(every=5)), 1000)
    assert (*intervals(found), found.evaluate_tokens, found.steps) == (7, 0, 5, 99, 1000)


def some_plan(**changes: Any) -> Plan:
    return dataclasses.replace(plan_of(TrainConfig(steps=50), 50), **changes)


@given(steps=positive, every=positive)
def test_everything_is_due_at_the_last_step_and_each_so_many(steps: int, every: int) -> None:
    found = some_plan(steps=steps)
    assert found.is_due(every, steps)
    due = [step for step in range(1, steps + 1) if found.is_due(every, step)]
    assert due == sorted({*range(every, steps + 1, every), steps})
    assert not any(found.is_due(0, step) for step in (1, steps))


@given(seconds=st.floats(0, 1e6), per_step=st.floats(1e-4, 1e3), step=positive)
def test_steps_fit_into_the_time(seconds: float, per_step: float, step: int) -> None:
    steps = steps_that_fit(seconds, per_step)
    assert steps * per_step <= seconds * (1 + 1e-9)
    assert (steps + 1) * per_step > seconds * (1 - 1e-9)
    corrected = some_plan().corrected(step, seconds, per_step)
    assert corrected.steps == step + max(1, steps)
    assert intervals(corrected) == intervals(some_plan())


def test_time_that_is_over_leaves_one_step() -> None:
    assert some_plan().corrected(10, -5.0, 0.1).steps == 11


def test_a_plan_is_resumed_as_it_was_unless_something_else_is_asked_for() -> None:
    same = TrainConfig(steps=50)
    assert some_plan().resumed(same, 10, 5.0) == some_plan()
    longer = some_plan().resumed(TrainConfig(steps=80), 10, 5.0)
    assert (longer.steps, intervals(longer)) == (80, intervals(some_plan()))
    # Resumed once more, nothing new is asked for, and nothing is forgotten.
    assert longer.resumed(TrainConfig(steps=80), 20, 9.0) == longer


def test_intervals_are_those_of_the_config_that_resumes() -> None:
    often = TrainConfig(steps=50, checkpoint=CheckpointConfig(every=1))
    plan = some_plan().resumed(often, 10, 5.0)
    assert (plan.checkpoint_every, plan.sample_every) == (1, some_plan().sample_every)
    rare = TrainConfig(steps=50, watch=WatchConfig(evaluate_every=40, sample_every=0))
    plan = plan.resumed(rare, 10, 5.0)
    assert intervals(plan) == (40, 0, 40)
    assert plan.evaluate_tokens == some_plan().evaluate_tokens  # else losses would not compare
    # What is left open again follows from the steps again.
    assert plan.resumed(TrainConfig(steps=50), 10, 5.0) == some_plan()


def test_a_new_budget_counts_what_was_spent() -> None:
    """10 steps took 5 s: half a second each, and 97 % of the budget are for steps."""
    found = some_plan().resumed(TrainConfig(steps=50, budget="100s"), 10, 5.0)
    assert found.steps == 10 + int((97 - 5) / 0.5)
    corrected = some_plan(steps=70, asked_budget="100s")
    assert corrected.resumed(TrainConfig(steps=50, budget="100s"), 10, 5.0) == corrected


def test_trying_steps_leaves_no_trace(make_config: MakeConfig) -> None:
    tried, untried = (build(make_config(name, model__dropout=0.1), Ranks()) for name in ("a", "b"))
    assert try_steps(tried, budget=1.0) > 0
    assert not any(optimizer.state for optimizer in tried.optimizers)
    ours, theirs = tried.model.state_dict(), untried.model.state_dict()
    assert all(ours[name].equal(theirs[name]) for name in ours)
    results = [one.step(0, seed=0, rate_factor=1.0) for one in (tried, untried)]
    assert results[0] == results[1]


class Time:
    """Stands still, except while steps are made and checkpoints are saved."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def run_in(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A run whose n-th step takes as long as the test says; the run, and what the clock shows."""

    def run(seconds_of_step: Callable[[int], float], **changes: Any) -> tuple[start.Run, float]:
        time, step, save = Time(), Training.step, CheckpointStore.save

        def slow_step(self: Training, number: int, **settings: Any) -> Any:
            time.now += seconds_of_step(number)
            return step(self, number, **settings)

        def slow_save(self: CheckpointStore, *args: Any, **settings: Any) -> Path:
            time.now += 0.02
            return save(self, *args, **settings)

        for module in (plan, loop):
            monkeypatch.setattr(module, "perf_counter", time)
        monkeypatch.setattr(Training, "step", slow_step)
        monkeypatch.setattr(CheckpointStore, "save", slow_save)
        return start.train(make_config(checkpoint__every=None, **changes)), time.now

    return run


SPEEDS: dict[str, Callable[[int], float]] = {
    "even": lambda _: 0.1,
    "slower and slower": lambda step: 0.06 + step / 500,
    "faster and faster": lambda step: 0.04 + 0.16 / (1 + step / 5),
    "in bursts": lambda step: 0.3 if step % 5 == 3 else 0.04,
}


@pytest.mark.parametrize(
    ("speed", "schedule", "floor"),
    [
        (SPEEDS["even"], "cosine", 0.1),
        (SPEEDS["slower and slower"], "cosine", 0.1),
        (SPEEDS["faster and faster"], "linear", 0.0),
        (SPEEDS["in bursts"], "linear", 0.0),
    ],
    ids=list(SPEEDS),
)
def test_a_run_with_a_budget_ends_on_time_and_at_the_floor(
    run_in: Callable[..., Any], speed: Callable[[int], float], schedule: Any, floor: float
) -> None:
    run, seconds = run_in(
        speed,
        budget="5s",
        optimizer__schedule=ScheduleConfig(name=schedule),
        watch__log_every=7,
    )
    assert 4.5 < seconds <= 5.0
    rates = [record["lr"] for record in run.metrics if record["kind"] == "train"]
    assert run.state.step == run.state.plan.steps > 30
    assert 0 < rates[-1] / 3e-3 - floor <= 2 / run.state.step  # one step of the fall is left
    assert rates[-1] == min(rates[1:])


def test_the_time_left_follows_the_budget_from_the_first_line(
    run_in: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the first step is slow, which it usually is."""
    left, lines = [], []
    listening, step = loop.Reporter.listening, loop.Reporter.step

    @contextmanager
    def watched(self: Any, state: Any, seconds: float) -> Iterator[None]:
        with listening(self, state, seconds):
            left.append(seconds)
            lines.append("  ".join(self.status()))
            yield

    def told(self: Any, *args: Any, seconds_left: float, **about: Any) -> None:
        step(self, *args, seconds_left=seconds_left, **about)
        left.append(seconds_left)

    monkeypatch.setattr(loop.Reporter, "listening", watched)
    monkeypatch.setattr(loop.Reporter, "step", told)
    run_in(lambda step: 0.5 if step == 0 else 0.1, budget="5s")
    assert left[0] == pytest.approx(5 - 2 * 0.5 - 0.02)  # two steps were tried, one saved
    assert lines[0].endswith("4.0 s left")
    assert left[1] == pytest.approx(left[0] - 0.5)
    falls = [before - after for before, after in itertools.pairwise(left[1:-1])]
    assert falls == pytest.approx([0.1] * len(falls), abs=0.03)
    assert left[-1] == 0
