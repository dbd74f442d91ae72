"""The folder of a run: what others left in it or beside it, and what is missing from it."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import pytest
from tests.train.conftest import MakeConfig
from tests.train.test_safety import at_saves, fail_to_sync

from trafo.errors import InputError, StorageError
from trafo.train import start
from trafo.train.config import TrainConfig
from trafo.train.run import Run


def test_a_run_that_never_began_does_not_become_the_latest(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    start.train(make_config("good", steps=1))
    with at_saves(monkeypatch, [0], os__fsync=fail_to_sync), pytest.raises(StorageError):
        start.train(make_config("bad", steps=1))
    assert (tmp_path / "latest").readlink() == Path("good")


def test_a_link_to_a_run_that_is_gone_is_named_and_then_removed(tmp_path: Path) -> None:
    latest = tmp_path / "latest"
    latest.symlink_to("deleted")
    with pytest.raises(InputError, match="is a link to deleted, which does not exist"):
        Run.open(latest)
    Run.new(TrainConfig(out=tmp_path / "run"))
    assert not latest.is_symlink()


def test_the_empty_folder_of_a_killed_run_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = TrainConfig(text=("story.txt",))
    folder = tmp_path / "runs" / "story"
    folder.mkdir(parents=True)
    for name in (".lock", ".config.yaml.0123456789ab.tmp"):
        (folder / name).touch()
    assert Run.new(config).path.absolute() == folder
    assert [path.name for path in folder.iterdir()] == ["config.yaml"]
    assert Run.new(config).path.name == "story-2"
    (tmp_path / "runs" / "story-3").mkdir()
    (tmp_path / "runs" / "story-3" / "notes").touch()
    assert Run.new(config).path.name == "story-4"


def test_a_folder_is_never_there_without_its_config(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Run, config: TrainConfig) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Run, "write_config", fail)
    with pytest.raises(KeyboardInterrupt):
        Run.new(TrainConfig(out=tmp_path / "runs" / "run"))
    assert not list((tmp_path / "runs").iterdir())


def test_leftovers_are_removed_by_the_next_run(make_config: MakeConfig) -> None:
    config = make_config(steps=1)
    path = start.train(config).path
    token = "0123456789ab"
    leftovers = [
        path / f".metrics.jsonl.{token}.tmp",
        path / "checkpoints" / f".best.json.{token}.tmp",
        path / "tokenizer" / f".vocab.json.{token}.tmp",
    ]
    beside = path.parent / f".other.{token}.tmp"
    beside.mkdir()
    os.utime(beside, (1, 1))
    for leftover in leftovers:
        leftover.touch()
    start.resume(path)
    assert not any(leftover.exists() for leftover in leftovers)
    start.train(dataclasses.replace(config, out=path.with_name("next")))
    assert not beside.exists()


@pytest.mark.parametrize("what", ["deleted", "damaged"])
def test_a_tokenizer_that_is_gone_is_restored(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    run = start.train(make_config(steps=1))
    before = {path.name: path.read_bytes() for path in run.tokenizer_folder.iterdir()}
    if what == "deleted":
        shutil.rmtree(run.tokenizer_folder)
    else:
        (run.tokenizer_folder / "merges.txt").write_text("")
    start.resume(run.path)
    assert {path.name: path.read_bytes() for path in run.tokenizer_folder.iterdir()} == before
    assert f"{run.tokenizer_folder} was missing or damaged: restored" in capsys.readouterr().err
    start.resume(run.path)
    assert "restored" not in capsys.readouterr().err
