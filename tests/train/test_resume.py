"""What a resumed run keeps of what it was asked for: steps, intervals, the same text."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.train.conftest import MakeConfig
from tests.train.test_exact_resume import Killed, assert_same_run

from trafo.checkpoint.store import CheckpointStore
from trafo.errors import InputError
from trafo.train import start
from trafo.train.config import CheckpointConfig, TrainConfig
from trafo.train.metrics import read_metrics
from trafo.train.step import StepResult, Training

NOT_A_NUMBER = StepResult(loss=float("nan"), grad_norm=1.0, num_targets=1, batch=0)


def once_at(
    monkeypatch: pytest.MonkeyPatch, number: int, happens: Callable[[], StepResult | None]
) -> None:
    """The first time step `number` is made, something happens before it, or instead of it."""
    step, happened = Training.step, []

    def step_or(self: Training, at: int, **settings: Any) -> StepResult:
        if at == number and not happened:
            happened.append(at)
            if result := happens():
                return result
        return step(self, at, **settings)

    monkeypatch.setattr(Training, "step", step_or)


def die() -> None:
    raise Killed


@pytest.fixture
def short(make_config: MakeConfig) -> TrainConfig:
    """Six steps, and a checkpoint at the end."""
    return make_config("short", steps=6, checkpoint__every=6)


def prolonged(config: TrainConfig) -> TrainConfig:
    return dataclasses.replace(config, steps=12)


def test_a_prolonged_run_that_is_killed_stays_prolonged(
    make_config: MakeConfig, short: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    straight = make_config("straight", steps=6, checkpoint__every=6)
    for config in (straight, short):
        start.train(config)
    start.resume(straight.out or "", prolonged(straight))
    once_at(monkeypatch, 8, die)
    with pytest.raises(Killed):
        start.resume(short.out or "", prolonged(short))
    run = start.resume(short.out or "")
    assert run.state is not None
    assert run.state.step == run.state.plan.steps == 12
    assert_same_run(straight.out, short.out)


def test_a_prolonged_run_that_goes_back_stays_prolonged(
    short: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    start.train(short)
    once_at(monkeypatch, 8, lambda: NOT_A_NUMBER)
    run = start.resume(short.out or "", prolonged(short))
    assert run.state is not None
    assert (run.state.step, run.state.attempt) == (12, 1)


def test_other_intervals_apply_from_there_on(short: TrainConfig) -> None:
    start.train(short)
    config = dataclasses.replace(
        prolonged(short),
        checkpoint=CheckpointConfig(every=2, keep=9),
        watch=dataclasses.replace(short.watch, evaluate_every=3, log_every=5),
    )
    run = start.resume(short.out or "", config)
    assert CheckpointStore(run.checkpoint_folder).steps() == [0, 6, 8, 10, 12]
    later = [(r["kind"], r["step"]) for r in run.metrics if r["step"] > 6]
    assert later == [
        ("validation", 9),
        ("train", 10),
        ("train", 12),
        ("validation", 12),
    ]


def test_another_text_of_the_same_length_is_noticed(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    text = tmp_path / "own.txt"
    text.write_text("one two three " * 500)
    config = make_config(text=(str(text),))
    start.train(config)
    text.write_text("one two seven " * 500)
    with pytest.raises(InputError, match="not what this run was trained on"):
        start.resume(config.out or "")


def test_a_run_says_how_it_ended(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    config = make_config()
    once_at(monkeypatch, 3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    run = start.train(config)
    assert run.path == config.out
    assert run.state is not None
    assert (run.stopped_by, run.state.step) == (signal.SIGTERM, 4)
    run = start.resume(run.path)
    assert run.state is not None
    assert (run.stopped_by, run.state.step) == (None, 12)
    assert run.metrics == read_metrics(run.path / "metrics.jsonl")
    assert run.metrics[-1]["loss"] == run.state.validation_loss
