"""What a resumed run keeps of what it was asked for: steps, intervals, the same text."""

from __future__ import annotations

import dataclasses
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.training.conftest import MakeConfig
from tests.training.test_exact_resume import Killed, assert_same_run

from trafo.checkpoint.store import CheckpointStore
from trafo.errors import ConfigError, InputError
from trafo.tokenizer import Tokenizer, encode_files
from trafo.training import start
from trafo.training.config import CheckpointConfig, TrainConfig
from trafo.training.metrics import read_metrics
from trafo.training.step import StepResult, Training

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
    assert steps_of(start.resume(short.out or "")) == 12
    assert_same_run(straight.out, short.out)


def test_a_prolonged_run_that_goes_back_stays_prolonged(
    short: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    start.train(short)
    once_at(monkeypatch, 8, lambda: NOT_A_NUMBER)
    run = start.resume(short.out or "", prolonged(short))
    assert run.state is not None
    assert (run.state.step, run.state.attempt) == (12, 1)


def test_what_was_asked_for_is_stored_before_anything_else(
    short: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill while the text is still being read must not forget the prolongation."""
    start.train(short)
    with monkeypatch.context() as patch:
        patch.setattr(start, "build", lambda *_: die())
        with pytest.raises(Killed):
            start.resume(short.out or "", prolonged(short))
    assert steps_of(start.resume(short.out or "")) == 12


def test_what_is_refused_is_not_stored(short: TrainConfig) -> None:
    start.train(short)
    with pytest.raises(ConfigError, match="batch_size"):
        start.resume(short.out or "", dataclasses.replace(prolonged(short), batch_size=10**5))
    with pytest.raises(ConfigError, match="steps is 5, this run is already at step 6"):
        start.resume(short.out or "", dataclasses.replace(short, steps=5))
    assert steps_of(start.resume(short.out or "")) == 6


def test_steps_asked_for_take_the_place_of_a_budget(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = make_config(budget="20s", steps=6)
    once_at(monkeypatch, 3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    done = start.train(config).state
    assert done is not None
    steps = done.step + 3
    run = start.resume(config.out or "", dataclasses.replace(config, steps=steps))
    assert steps_of(run) == steps
    assert run.read_config().budget is None


LINKS = [
    "config.yaml",
    "metrics.jsonl",
    "samples.txt",
    "checkpoints",
    "tokenizer/trafo.json",
    ".lock",
]


@pytest.mark.parametrize("name", [*LINKS, "checkpoints/step-00000000", "checkpoints/best.json"])
def test_nothing_is_written_through_a_symbolic_link(
    short: TrainConfig, tmp_path: Path, name: str
) -> None:
    path = start.train(short).path / name
    path.touch()  # samples.txt is not there yet
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)
    before = content(elsewhere)
    with pytest.raises(InputError, match=f"{path}.*symbolic link"):
        start.resume(short.out or "", prolonged(short))
    assert path.is_symlink()
    assert content(elsewhere) == before


def content(path: Path) -> dict[Path, bytes]:
    files = path.rglob("*") if path.is_dir() else [path]
    return {file: file.read_bytes() for file in files if file.is_file()}


def steps_of(run: start.Run) -> int:
    assert run.state is not None
    assert run.state.step == run.state.plan.steps
    return run.state.step


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
        ("final", 12),
    ]


def test_another_validation_set_starts_the_comparison_anew(
    short: TrainConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    before = start.train(short).state
    assert before is not None
    watch = dataclasses.replace(short.watch, evaluate_tokens=700)
    state = start.resume(short.out or "", dataclasses.replace(prolonged(short), watch=watch)).state
    assert state is not None
    assert state.best_loss == state.validation_loss
    assert "the validation set has changed" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["text", "validation"])
@pytest.mark.parametrize("changed", ["one two seven " * 500, "one two three " * 501])
def test_another_text_is_noticed(
    make_config: MakeConfig, tmp_path: Path, kind: str, changed: str
) -> None:
    text = tmp_path / "own.txt"
    text.write_text("one two three " * 500)
    config = make_config(**{kind: (str(text),)})
    start.train(config)
    text.write_text(changed)
    name = "training text" if kind == "text" else "validation text"
    with pytest.raises(InputError, match=f"not what this run was trained on: another {name}"):
        start.resume(config.out or "")


def test_another_token_file_of_the_same_length_is_noticed(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [])
    tokenizer.save(tmp_path / "bytes")
    text, tokens = tmp_path / "text.txt", tmp_path / "text.tokens"
    text.write_text("one two three " * 500)
    encode_files(tokenizer, str(text), tokens)
    config = make_config(text=(), data__tokens=tokens, data__tokenizer=tmp_path / "bytes")
    start.train(config)
    text.write_text("one two seven " * 500)
    encode_files(tokenizer, str(text), tokens)
    with pytest.raises(InputError, match="another training text"):
        start.resume(config.out or "")


def test_a_resumed_budget_says_what_does_not_hold(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(budget="20s")
    once_at(monkeypatch, 3, lambda: os.kill(os.getpid(), signal.SIGTERM))
    start.train(config)
    start.resume(config.out or "", dataclasses.replace(config, budget="2s"))
    assert "bit-exactness does not hold" in capsys.readouterr().err


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
    assert run.metrics[-2]["loss"] == run.state.validation_loss
