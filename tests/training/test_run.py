"""The folder of a run: what others left in it or beside it, and what is missing from it."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path

import pytest
from tests.training.conftest import MakeConfig
from tests.training.test_safety import at_saves, fail_to_sync

from trafo.errors import InputError, StorageError
from trafo.training import start
from trafo.training.config import TrainConfig
from trafo.training.run import Run


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


@pytest.mark.parametrize(
    "what", ["", "merges.txt", "vocab.json", "trafo.json", "tokenizer.json", "tokenizer.json cut"]
)
@pytest.mark.parametrize("kind", ["text", "pairs"])
def test_a_tokenizer_that_is_gone_is_restored(
    make_config: MakeConfig,
    make_pairs_config: MakeConfig,
    capsys: pytest.CaptureFixture[str],
    what: str,
    kind: str,
) -> None:
    make = make_config if kind == "text" else make_pairs_config
    run = start.train(make(steps=1))
    before = {path.name: path.read_bytes() for path in run.tokenizer_folder.iterdir()}
    name, _, is_cut = what.partition(" ")
    damaged = run.tokenizer_folder / name
    if not what:
        shutil.rmtree(run.tokenizer_folder)
    elif is_cut:
        damaged.write_bytes(damaged.read_bytes()[:300])
    else:  # still a valid file, of another tokenizer or of none
        damaged.write_text(damaged.read_text().replace("e", "f", 1))
    start.resume(run.path)
    assert {path.name: path.read_bytes() for path in run.tokenizer_folder.iterdir()} == before
    assert f"{run.tokenizer_folder} was missing or damaged: restored" in capsys.readouterr().err
    start.resume(run.path)
    assert "restored" not in capsys.readouterr().err


def test_the_loser_of_two_that_start_in_one_folder_is_told_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write, others = Run.write_config, []

    def start_another(self: Run, config: TrainConfig) -> None:
        write(self, config)
        if not others:  # while this one is about to appear
            others.append(config)
            others.append(Run.new(config))

    monkeypatch.setattr(Run, "write_config", start_another)
    with pytest.raises(StorageError, match="run: another process is training there"):
        Run.new(TrainConfig(out=tmp_path / "run"))
    others.clear()
    assert Run.new(TrainConfig(text=("story.txt",))).path.name == "story-2"  # the next free name
    assert others[1].path.name == "story"


def test_a_checkpoint_without_its_manifest_is_not_passed_over_in_silence(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    run = start.train(make_config(steps=6, checkpoint__every=3))
    (run.checkpoint_folder / "step-00000006" / "manifest.json").unlink()
    assert start.resume(run.path).stopped_by is None
    said = capsys.readouterr().err
    assert said.count("step-00000006/manifest.json: missing from the checkpoint; using the") == 1
    assert "resuming at step 3" in said
    for path in run.checkpoint_folder.glob("step-*/manifest.json"):
        path.unlink()
    with pytest.raises(InputError, match="no usable checkpoint"):  # not from the start again
        start.resume(run.path)
    assert len(list(run.checkpoint_folder.glob("step-*/model.safetensors"))) == 2


def test_damaged_metrics_are_mentioned(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    run = start.train(make_config(steps=4))
    lines = run.metrics_file.read_text().splitlines(keepends=True)
    run.metrics_file.write_text("".join([lines[0][:5] + "\n", *lines[1:-2]]))
    start.resume(run.path)
    assert f"{run.metrics_file} is damaged: 3 records are missing" in capsys.readouterr().err
    run.metrics_file.write_text("".join(lines))
    start.resume(run.path)
    assert "damaged" not in capsys.readouterr().err
