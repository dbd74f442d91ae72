"""When something goes wrong a run says so in a line, and what was saved stays."""

from __future__ import annotations

import io
import os
import resource
import shutil
import sys
import types
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tests.training.conftest import MakeConfig
from tests.training.test_exact_resume import assert_same_run
from torch import Tensor

from trafo.checkpoint import store
from trafo.checkpoint.store import CheckpointStore
from trafo.cli.main import main
from trafo.config import to_yaml
from trafo.errors import InputError
from trafo.runtime.console import say
from trafo.training import start
from trafo.training.config import TrainConfig
from trafo.training.metrics import AppendedFile, read_metrics
from trafo.training.step import StepResult, Training
from trafo.training.tasks.language import NextTokenLoss

FULL = OSError(28, os.strerror(28))


def run_command(config: TrainConfig, tmp_path: Path) -> int:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(to_yaml(config))
    return main(["train", "--config", str(recipe), "--quiet"])


def steps_saved(config: TrainConfig) -> list[int]:
    assert config.out is not None
    return CheckpointStore(config.out / "checkpoints").steps()


def fail_to_sync(_descriptor: int) -> None:
    raise FULL


def fail_to_write(*_: Any, **__: Any) -> None:
    raise store.SafetensorError("Error while serializing: I/O error: No space (os error 28)")


@contextmanager
def at_saves(
    monkeypatch: pytest.MonkeyPatch, steps: list[int], **patches: Any
) -> Iterator[list[int]]:
    """Patch `module.name` (a keyword with __) while these steps are being saved."""
    save, tried = CheckpointStore.save, []

    def save_or_fail(self: CheckpointStore, step: int, *args: Any, **kwargs: Any) -> Path:
        tried.append(step)
        with monkeypatch.context() as patch:
            for name, value in patches.items() if step in steps else ():
                patch.setattr(name.replace("__", "."), value)
            return save(self, step, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(CheckpointStore, "save", save_or_fail)
        yield tried


@pytest.mark.parametrize(
    "patches",
    [{"os__fsync": fail_to_sync}, {"trafo__checkpoint__snapshot__save_file": fail_to_write}],
    ids=["while syncing", "while writing tensors"],
)
def test_a_disk_that_is_full_for_a_while_costs_one_checkpoint(
    make_config: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    patches: dict[str, Any],
) -> None:
    config = make_config()
    with at_saves(monkeypatch, [6, 9], **patches) as tried:
        assert run_command(config, tmp_path) == 0
    assert tried == [0, 3, 6, 9, 12]
    assert steps_saved(config) == [3, 12]
    said = capsys.readouterr().err
    assert said.count("no space left on device") == 1  # once, although two failed
    assert "not saved at step 6; the checkpoint of step 3 stays, training continues" in said
    assert said.count("saved again, at step 12") == 1
    assert not list((tmp_path / "run" / "checkpoints").glob(".*"))


@contextmanager
def full_disk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing can be written below the folder; what is open for writing fails as well."""
    write, open_file = AppendedFile.append, Path.open

    def refuse(self: AppendedFile, data: bytes) -> None:
        whole, self._file = self._file, FullFile()  # type: ignore[assignment]
        try:
            write(self, data)
        finally:
            self._file = whole

    def open_or_refuse(self: Path, mode: str = "r", *args: Any, **kwargs: Any) -> Any:
        if folder in self.parents and mode[0] in "awx":
            raise OSError(28, os.strerror(28), str(self))
        return open_file(self, mode, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(AppendedFile, "append", refuse)
        patch.setattr(Path, "open", open_or_refuse)
        patch.setattr(os, "fsync", fail_to_sync)
        yield


class FullFile:
    def write(self, data: bytes) -> int:
        raise FULL


def test_no_observer_ends_a_run_on_a_full_disk(
    make_config: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """TensorBoard, metrics, samples, curve and checkpoint, from step 5 to step 8."""
    settings: dict[str, Any] = {"watch__tensorboard": True, "watch__sample_every": 1}
    straight, config = make_config("straight", **settings), make_config("full", **settings)
    start.train(straight)
    capsys.readouterr()
    step = Training.step

    def step_on_a_full_disk(self: Training, at: int, **given: Any) -> StepResult:
        if at == 4:
            full.enter_context(full_disk(config.out or Path(), monkeypatch))
        if at == 8:
            full.close()
        return step(self, at, **given)

    with ExitStack() as full, monkeypatch.context() as patch:
        patch.setattr(Training, "step", step_on_a_full_disk)
        start.train(config)
    said = capsys.readouterr().err
    assert said.count("no space left on device while writing; training continues") == 1
    assert said.count("resolved: no space left on device") == 1
    assert said.count("not saved at step") == said.count("saved again") == 1
    assert_same_run(straight.out, config.out)  # with all records: they were written later
    curves = [
        EventAccumulator(str((one.out or Path()) / "tensorboard")).Reload().Scalars("train/loss")
        for one in (straight, config)
    ]
    assert [(e.step, e.value) for e in curves[0]] == [(e.step, e.value) for e in curves[1]]


def test_no_observer_ends_a_run_by_an_error_of_its_own(
    make_config: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the network is gone")

    wandb = types.ModuleType("wandb")
    wandb.init = lambda **_: types.SimpleNamespace(log=fail, finish=fail)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    monkeypatch.setattr("trafo.training.report.draw_curves", fail)
    run = start.train(make_config(watch__wandb="project"))
    said = capsys.readouterr().err
    assert run.stopped_by is None
    assert said.count("WeightsAndBiases: RuntimeError('the network is gone')") == 1
    wandb.init = fail  # type: ignore[attr-defined]
    assert start.resume(run.path).stopped_by is None
    assert "not logged to Weights & Biases: RuntimeError" in capsys.readouterr().err


def test_a_message_that_cannot_be_written_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    class Full(io.StringIO):
        def write(self, text: str) -> int:
            tried.append(text)
            raise FULL

    monkeypatch.setattr(sys, "stderr", Full())
    say("a word")
    assert "".join(tried).strip() == "a word"


def test_a_last_checkpoint_that_cannot_be_saved_is_an_error(
    make_config: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    config = make_config()
    with at_saves(monkeypatch, [12], os__fsync=fail_to_sync):
        assert run_command(config, tmp_path) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("error: ")
    assert "no space left on device" in said[-1]
    assert steps_saved(config) == [6, 9]
    assert start.resume(config.out or "").stopped_by is None  # when there is space again
    assert steps_saved(config) == [9, 12]


def test_when_nothing_can_be_saved_at_all_nothing_is_left_behind(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config = make_config()
    with at_saves(monkeypatch, [0], os__fsync=fail_to_sync):
        assert run_command(config, tmp_path) == 2
    assert not (tmp_path / "run").exists()


@contextmanager
def files_no_larger_than(num_bytes: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_the_system_itself_refuses_is_said_as_well(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config()
    save = CheckpointStore.save

    def limited(self: CheckpointStore, step: int, *args: Any, **kwargs: Any) -> Path:
        with files_no_larger_than(10_000 if step == 6 else 2**40):
            return save(self, step, *args, **kwargs)

    monkeypatch.setattr(CheckpointStore, "save", limited)
    assert start.train(config).stopped_by is None
    said = capsys.readouterr().err
    assert "file too large" in said
    assert "not saved at step 6; the checkpoint of step 3 stays" in said
    assert steps_saved(config) == [9, 12]


def not_a_number_at(monkeypatch: pytest.MonkeyPatch, *calls: int, add: float = torch.nan) -> None:
    """The objective gives no number, or more than it should, the n-th time it is asked."""
    forward, count = NextTokenLoss.forward, [0]

    def spoilt(self: NextTokenLoss, *args: Tensor) -> Tensor:
        count[0] += 1
        loss = forward(self, *args)
        return loss + add * args[0].numel() if count[0] in calls else loss

    monkeypatch.setattr(NextTokenLoss, "forward", spoilt)


def batches(config: TrainConfig) -> dict[int, int]:
    assert config.out is not None
    records = read_metrics(config.out / "metrics.jsonl")
    return {record["step"]: record["batch"] for record in records if record["kind"] == "train"}


def test_a_loss_that_is_no_number_sends_back_once(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    straight, config = make_config("straight"), make_config("config")
    assert start.train(straight).stopped_by is None
    capsys.readouterr()
    not_a_number_at(monkeypatch, 8)
    assert start.train(config).stopped_by is None
    said = capsys.readouterr().err
    assert said.count("step 8: loss nan") == 1
    assert "back to step 6, with other batches from there" in said
    ours, before = batches(config), batches(straight)
    assert list(ours) == list(range(1, 13))
    assert {step for step in ours if ours[step] != before[step]} == set(range(7, 13))
    assert steps_saved(config)[-1] == 12


def test_one_that_went_back_resumes_exactly_too(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, halves = make_config("whole"), make_config("halves")
    not_a_number_at(monkeypatch, 5, 12 + 2 + 5)  # each time at step 5; 2 steps are made again
    start.train(whole)
    assert start.train(halves).stopped_by is None
    assert steps_saved(halves) == [9, 12]
    shutil.rmtree((halves.out or Path()) / "checkpoints" / "step-00000012")
    assert start.resume(halves.out or "").stopped_by is None
    assert batches(whole) == batches(halves)


def test_the_second_time_it_stops_and_the_checkpoint_stays(
    make_config: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    config = make_config()
    not_a_number_at(monkeypatch, 8, 10)
    assert run_command(config, tmp_path) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith("error: step 8: loss nan")
    assert "for the second time; stopped; the checkpoint of step 6 stays" in said[-1]
    assert steps_saved(config) == [3, 6]


def test_a_gradient_that_is_not_finite_counts_as_well(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The weights must not be touched by it."""
    forward = NextTokenLoss.forward

    def steep(self: NextTokenLoss, *args: Tensor) -> Tensor:
        loss = forward(self, *args)
        loss.register_hook(lambda gradient: gradient * torch.inf)
        return loss

    monkeypatch.setattr(NextTokenLoss, "forward", steep)
    config = make_config()
    with pytest.raises(InputError, match=r"step 1: loss \d.*gradient norm (nan|inf)"):
        start.train(config)
    weights = CheckpointStore((config.out or Path()) / "checkpoints").newest().snapshot.weights
    assert all(tensor.isfinite().all() for tensor in weights.values())


def test_a_spike_is_reported_and_training_goes_on(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    not_a_number_at(monkeypatch, 6, add=3.0)
    assert start.train(make_config()).stopped_by is None
    said = capsys.readouterr().err
    assert said.count("the loss jumped from about") == 1
    assert "step 6: the loss jumped from about 5." in said
