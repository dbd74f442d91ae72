"""How many steps, how often what, and how a budget of time becomes both."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.training.conftest import MakeConfig

from trafo.checkpoint.store import CheckpointStore
from trafo.optim.config import ScheduleConfig
from trafo.training import loop, plan, start
from trafo.training.build import build
from trafo.training.config import CheckpointConfig, MachineConfig, TrainConfig, WatchConfig
from trafo.training.distributed import Ranks
from trafo.training.plan import Plan, steps_that_fit, try_steps
from trafo.training.step import Training

positive = st.integers(1, 10_000)


class Windows:
    """What a plan asks a task: 16 windows of 256 tokens in a step."""

    tokens_per_step = 16 * 256
    window = 256

    def __init__(self, num_held_out: int = 10**6) -> None:
        self.num_held_out = num_held_out


WINDOWS: Any = Windows()


def plan_of(config: TrainConfig, steps: int, task: Any = WINDOWS) -> Plan:
    return Plan.of(config, steps, task)


def intervals(found: Plan) -> tuple[int, int, int]:
    return found.evaluate_every, found.sample_every, found.checkpoint_every


@given(steps=st.integers(1, 100_000))
def test_what_is_left_open_follows_from_the_steps(steps: int) -> None:
    """20 validations or fewer, 4 samples and 10 checkpoints, each of weights that were measured."""
    found = plan_of(TrainConfig(), steps)
    assert steps / found.evaluate_every <= 20
    for every, times in zip(intervals(found)[1:], (4, 10), strict=True):
        assert times / 2 <= steps / every <= 2 * times or (steps < times and every == 1)
    both = sorted([found.checkpoint_every, found.evaluate_every])
    assert both[1] % both[0] == 0


@given(
    steps=st.integers(1, 100_000),
    held_out=st.integers(257, 10**6),
    every=st.none() | st.integers(1, 1000),
    dtype=st.sampled_from(["float32", "bfloat16"]),
)
def test_validations_see_enough_tokens_in_a_small_share_of_the_time(
    steps: int, held_out: int, every: int | None, dtype: Any
) -> None:
    """Evaluation takes 0.4 of the time of a step on the same tokens, 0.8 in mixed precision."""
    machine, watch = MachineConfig(dtype=dtype), WatchConfig(evaluate_every=every)
    config, task = TrainConfig(machine=machine, watch=watch), Windows(held_out)
    found = plan_of(config, steps, task)
    final = found.final_tokens(config, task)  # type: ignore[arg-type]
    assert found.evaluate_tokens <= final <= max(held_out, found.evaluate_tokens)
    number = -(-steps // found.evaluate_every)
    measured = number * found.evaluate_tokens + (final if final > found.evaluate_tokens else 0)
    cost = measured * (0.4 if dtype == "float32" else 0.8)
    share = cost / (steps * Windows.tokens_per_step)
    fewest = found.evaluate_tokens <= min(4 * Windows.window, held_out)
    assert fewest or share <= (0.05 if every is None else 0.07)
    # Fewer than all, and fewer than the 32,768 of a standard error of 1 %, only to save time.
    if every is None and found.evaluate_tokens < min(held_out, 32_768):
        assert number == 1
        assert fewest or share > 0.049


def test_a_validation_shortly_before_the_end_waits_for_it() -> None:
    """Of a budget, a few steps more or less than planned; what the user asks for is done."""
    found = dataclasses.replace(plan_of(TrainConfig(), 100), steps=108, evaluate_every=50)
    assert [s for s in range(1, 109) if found.is_validation_due(TrainConfig(), s)] == [50, 108]
    asked = TrainConfig(watch=WatchConfig(evaluate_every=50))
    assert [s for s in range(1, 109) if found.is_validation_due(asked, s)] == [50, 100, 108]


def test_a_long_run_ends_with_all_held_out_tokens() -> None:
    found = plan_of(TrainConfig(), 10_000)
    assert found.evaluate_tokens == 32_768
    assert found.final_tokens(TrainConfig(), WINDOWS) == WINDOWS.num_held_out


def test_what_is_given_is_kept() -> None:
    watch = WatchConfig(evaluate_every=7, evaluate_tokens=99, sample_every=0)
    found = plan_of(TrainConfig(watch=watch, checkpoint=CheckpointConfig(every=5)), 1000)
    assert (*intervals(found), found.evaluate_tokens, found.steps) == (7, 0, 5, 99, 1000)


MEASURED = TrainConfig(watch=WatchConfig(evaluate_tokens=99))
"""without a separate final validation"""


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
    before = plan_of(MEASURED, 50)
    corrected = before.corrected(MEASURED, WINDOWS, step, seconds, per_step)
    last = 0.4 * 99 / Windows.tokens_per_step  # of a step: what the last validation takes
    assert corrected.steps - step in {max(1, steps + less) for less in (-1, 0)}
    more = corrected.steps - step
    assert more == 1 or (more + last) * per_step <= seconds * (1 + 1e-9)
    if 1 / 1.25 < corrected.steps / before.steps < 1.25:
        assert intervals(corrected) == intervals(before)
    else:  # planned all wrong: as if the steps had been known
        assert intervals(corrected) == intervals(plan_of(MEASURED, corrected.steps))


def test_time_that_is_over_leaves_one_step() -> None:
    assert some_plan().corrected(MEASURED, WINDOWS, 10, -5.0, 0.1).steps == 11


def test_a_plan_is_resumed_as_it_was_unless_something_else_is_asked_for() -> None:
    same = TrainConfig(steps=50)
    assert some_plan().resumed(same, WINDOWS, 10, 5.0) == some_plan()
    longer = some_plan().resumed(TrainConfig(steps=80), WINDOWS, 10, 5.0)
    assert (longer.steps, intervals(longer)) == (80, intervals(some_plan()))
    # Resumed once more, nothing new is asked for, and nothing is forgotten.
    assert longer.resumed(TrainConfig(steps=80), WINDOWS, 20, 9.0) == longer


def test_intervals_are_those_of_the_config_that_resumes() -> None:
    often = TrainConfig(steps=50, checkpoint=CheckpointConfig(every=1))
    plan = some_plan().resumed(often, WINDOWS, 10, 5.0)
    assert (plan.checkpoint_every, plan.sample_every) == (1, some_plan().sample_every)
    rare = TrainConfig(steps=50, watch=WatchConfig(evaluate_every=40, sample_every=0))
    plan = plan.resumed(rare, WINDOWS, 10, 5.0)
    assert intervals(plan) == (40, 0, 5)  # checkpoints do not wait for rare validations
    assert plan.evaluate_tokens == some_plan().evaluate_tokens  # else losses would not compare
    # What is left open again follows from the steps again.
    assert plan.resumed(TrainConfig(steps=50), WINDOWS, 10, 5.0) == some_plan()


def test_a_new_budget_counts_what_was_spent() -> None:
    """10 steps took 5 s: half a second each, and 97 % of the budget are for steps."""
    config = dataclasses.replace(MEASURED, steps=50, budget="100s")
    found = some_plan().resumed(config, WINDOWS, 10, 5.0)
    assert found.steps == 10 + int((97 - 5) / 0.5) - 1  # one step's time for the last validation
    corrected = some_plan(steps=70, asked_budget="100s")
    resumed = corrected.resumed(TrainConfig(steps=50, budget="100s"), WINDOWS, 10, 5.0)
    assert resumed == corrected


def test_steps_that_are_not_warm_predict_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step on too many threads can take a hundred times as long as the others."""
    time = Time()
    monkeypatch.setattr(plan, "perf_counter", time)
    clock = plan.Clock()
    clock.add_trial(0.2)
    clock.begin_steps()
    found = []
    for seconds, is_warm in [(9.0, False), (0.3, False), (0.2, True), (0.4, True)]:
        time.now += seconds
        clock.add_step(seconds, is_warm=is_warm)
        found.append(clock.seconds_per_step)
    assert found == pytest.approx([0.2, 0.2, 0.2, 0.3])  # as tried before, then the warm ones


def test_the_trial_leaves_out_steps_that_are_not_warm(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one, and those that compare numbers of threads."""
    training, time, number = build(make_config(), Ranks()), Time(), itertools.count()
    times = [3.0, 0.3, 2.0, 0.1, 0.2, 0.1]

    def step(self: Training, *args: Any, **settings: Any) -> None:
        index = next(number)
        time.now += times[index] if index < len(times) else 0.1
        training.threads = SimpleNamespace(is_trying=index < 2)  # type: ignore[assignment]

    monkeypatch.setattr(plan, "perf_counter", time)
    monkeypatch.setattr(Training, "step", step)
    training.threads = SimpleNamespace(is_trying=True)  # type: ignore[assignment]
    assert try_steps(training, budget=1000.0) == pytest.approx(0.1)
    number = itertools.count()
    training.threads = SimpleNamespace(is_trying=True)  # type: ignore[assignment]
    assert try_steps(training, budget=10.0) == pytest.approx(0.3)  # no time for a warm one


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
