"""`trafo train`, `resume`, `runs`, `plot` and `verify-resume` as users call and miscall them."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trafo.checkpoint.store import CheckpointStore
from trafo.cli.main import main
from trafo.cli.train import parse, take_value
from trafo.config import fields_table, flatten, load, to_tree, to_yaml
from trafo.data.prepare import DataConfig
from trafo.errors import ConfigError
from trafo.models import TransformerLMConfig
from trafo.runtime.atomic import lock_folder
from trafo.tokenizer.tokenizer import Tokenizer
from trafo.training.config import CheckpointConfig, MachineConfig, TrainConfig, WatchConfig

TEXT = "To be, or not to be, that is the question. Whether 'tis nobler in the mind to suffer. " * 30


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, with a text and a recipe that trains on it in a moment."""
    monkeypatch.chdir(tmp_path)
    furnish(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    furnish(folder)
    with contextlib.chdir(folder):
        assert main(TRAIN) == 0
    return folder


@pytest.fixture
def trained(trained_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Such a folder with a run in it, a copy for each test."""
    folder = tmp_path / "copy"
    shutil.copytree(trained_once, folder, symlinks=True)
    monkeypatch.chdir(folder)
    return folder


def furnish(folder: Path) -> None:
    (folder / "text.txt").write_text(TEXT)
    config = TrainConfig(
        text=("text.txt",),
        out=Path("runs/mine"),
        steps=4,
        batch_size=2,
        model=TransformerLMConfig(
            vocab_size=280, context_length=8, d_model=8, num_layers=1, num_heads=2
        ),
        data=DataConfig(cache=Path("cache")),
        watch=WatchConfig(log_every=1, evaluate_every=2, sample_every=0, tensorboard=False),
        checkpoint=CheckpointConfig(every=2),
        machine=MachineConfig(threads=1, peak_flops=1e11),
    )
    (folder / "recipe.yaml").write_text(to_yaml(config))


TRAIN = ["train", "--config", "recipe.yaml", "--quiet"]


def refusal(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on stderr of a command that is refused."""
    capsys.readouterr()
    assert main(argv) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    return said


MISTAKES = {
    "unknown flag": (["--batch-sise", "4"], "--batch-sise"),
    "flag of a wrong type": (["--steps", "many"], "--steps"),
    "batch larger than the data": (["--batch-size", "100000"], "batch_size is 100,000"),
    "data shorter than the context": (
        ["--model.context-length", "9000"],
        "context_length is 9000, there are only",
    ),
    "context longer than the model's": (
        ["--context-length", "9"],
        "context_length is 9, the model takes 8",
    ),
    "vocabulary smaller than the tokenizer's": (
        ["--data.tokenizer", "wide", "--model.vocab-size", "200"],
        "model.vocab_size is 200, the tokenizer has 256",
    ),
    "vocabulary smaller than bytes": (["--model.vocab-size", "9"], "vocab"),
    "text that is not there": (["nowhere.txt"], "nowhere.txt"),
    "tokenizer that is not there": (["--data.tokenizer", "nowhere"], "nowhere"),
    "budget that is not a duration": (["--budget", "soon"], "'soon' is not a duration"),
    "budget of nothing": (["--budget", "0s"], "budget is 0s"),
    "budget too short for a step": (["--budget", "1ms"], "budget is 1ms"),
    "no steps": (["--steps", "0"], "steps is 0"),
    "no batch": (["--batch-size", "0"], "batch_size is 0"),
    "batch that cannot be split": (["--batch-size", "3", "--accumulate", "2"], "batch_size 3"),
    "seed below zero": (["--seed", "-1"], "seed is -1"),
    "all held out": (["--data.held-out", "1"], "data.held_out is 1"),
    "nothing held out for a window": (["--data.held-out", "0.001"], "tokens for validation"),
    "heads that do not divide": (["--model.num-heads", "3"], "num_heads"),
    "device that is not there": (["--machine.device", "warp:9"], "machine.device is 'warp:9'"),
    "device of nothing but shapes": (["--machine.device", "meta"], "choose one of cpu"),
    "keeping no checkpoint": (["--checkpoint.keep", "0"], "checkpoint.keep is 0"),
    "negative rate": (["--optimizer.lr", "-1"], "optimizer.lr"),
    "tokens and a text": (
        ["--data.tokens", "some.tokens", "--data.tokenizer", "wide"],
        "data.tokens",
    ),
}


def test_a_file_name_that_is_not_utf8_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = os.fsdecode(b"n\xff.txt")
    (here / name).write_text("words and words\n" * 500)
    said = refusal([*TRAIN, name], capsys)
    assert "is not UTF-8" in said
    assert "rename" in said
    assert not (here / "runs" / "mine").exists()


def test_a_text_of_special_tokens_alone(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "specials.txt").write_text("<|endoftext|>" * 2000)
    assert main([*TRAIN, "specials.txt"]) == 0
    assert "on " in (measured := capsys.readouterr().out.partition("measured")[2])
    assert "bits per byte" not in measured


@pytest.mark.parametrize(("flags", "words"), MISTAKES.values(), ids=list(MISTAKES))
def test_mistakes_are_refused_in_a_line_that_names_them(
    here: Path, capsys: pytest.CaptureFixture[str], flags: list[str], words: str
) -> None:
    Tokenizer({i: bytes([i]) for i in range(256)}, []).save(here / "wide")
    assert words in refusal([*TRAIN, *flags], capsys)
    assert not (here / "runs" / "mine").exists()
    assert not (here / "runs" / "latest").is_symlink()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("stepps: 4", "unknown key stepps"),
        ("model: {d_modle: 8}", "unknown key model.d_modle"),
        ("steps: many", "steps: expected int"),
        ("model: {d_model: wide}", "model.d_model: expected int"),
        ("optimizer: {betas: 0.9}", "optimizer.betas"),
        ("optimizer: {name: adam}", "optimizer.name"),
        ("model: 5", "model: expected keys below it"),
        ("- 5", "is a list"),
        ("a: b: c", "is not YAML"),
    ],
)
def test_mistakes_in_a_recipe_name_the_key(
    here: Path, capsys: pytest.CaptureFixture[str], line: str, words: str
) -> None:
    (here / "wrong.yaml").write_text(line + "\n")
    assert words in refusal(["train", "text.txt", "--config", "wrong.yaml"], capsys)
    assert [path.name for path in here.iterdir() if path.is_dir()] == []


def test_a_recipe_that_is_not_there(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "gone.yaml" in refusal(["train", "--config", "gone.yaml"], capsys)
    assert "--config needs a value" in refusal(["train", "--config"], capsys)
    assert "no text" in refusal(["train"], capsys)


def test_a_token_file_of_another_tokenizer(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tokens,) = (trained / "cache").glob("*.tokens")
    Tokenizer({i: bytes([i]) for i in range(256)}, []).save(trained / "wide")
    flags = ["--data.tokens", str(tokens), "--data.tokenizer", "wide", "--out", "runs/other"]
    argv = ["train", "--config", "no-text.yaml", *flags]
    recipe = [
        line
        for line in (trained / "recipe.yaml").read_text().splitlines()
        if "text.txt" not in line and not line.startswith("text:")
    ]
    (trained / "no-text.yaml").write_text("\n".join(recipe))
    assert "made by another tokenizer" in refusal(argv, capsys)
    assert not (trained / "runs" / "other").exists()


def test_a_run_is_never_overwritten(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.read_bytes() for path in (trained / "runs").rglob("*") if path.is_file()}
    said = refusal(TRAIN, capsys)
    assert "runs/mine: already holds a run" in said
    assert "trafo resume runs/mine" in said
    assert before == {
        path: path.read_bytes() for path in (trained / "runs").rglob("*") if path.is_file()
    }
    (trained / "notes").mkdir()
    (trained / "notes" / "mine.txt").write_text("mine")
    assert "notes: is not empty" in refusal([*TRAIN, "--out", "notes"], capsys)
    assert (trained / "notes" / "mine.txt").read_text() == "mine"


def test_resume(trained: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    elsewhere = trained / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)  # the text was given as a relative path
    assert main(["resume", "../runs/latest", "--steps", "6", "--quiet"]) == 0
    assert "resuming at step 4 of 6" in capsys.readouterr().err
    assert CheckpointStore(trained / "runs" / "mine" / "checkpoints").steps()[-1] == 6


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], "needs a run"),
        (["--steps", "5"], "needs a run"),
        (["runs/other"], "runs/other: no such run"),
        (["cache"], "cache: not a run"),
        (["runs/mine", "--stepps", "5"], "--stepps"),
        (["runs/mine", "--model.d-model", "16"], "model.d_model is 16, this run has"),
        (["runs/mine", "--optimizer.name", "muon"], "optimizer.name is muon"),
        (["runs/mine", "--data.held-out", "0.5"], "data.held_out is 0.5, this run has 0.1"),
    ],
)
def test_mistakes_of_resume_leave_the_run_as_it_was(
    trained: Path, capsys: pytest.CaptureFixture[str], argv: list[str], words: str
) -> None:
    config = (trained / "runs" / "mine" / "config.yaml").read_text()
    assert words in refusal(["resume", *argv], capsys)
    assert (trained / "runs" / "mine" / "config.yaml").read_text() == config
    assert main(["resume", "runs/mine", "--quiet"]) == 0


def test_two_cannot_train_in_one_folder(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:

    with lock_folder(trained / "runs" / "mine"):
        assert "runs/mine" in refusal(["resume", "runs/mine", "--quiet"], capsys)


def test_help_of_resume_with_and_without_a_run(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for argv, steps in ((["--help"], 1000), (["runs/mine", "--help"], 4)):
        assert main(["resume", *argv]) == 0
        shown = " ".join(re.sub("[│╭╮╰╯─]", " ", capsys.readouterr().out).split())
        assert "usage: trafo resume RUN [-h]" in shown
        assert "Resume RUN from its newest checkpoint" in shown
        assert f"as many as fit into it (default: {steps})" in shown


@pytest.mark.parametrize(
    ("flag", "right"),
    [
        ("--muon-lr", "--optimizer.muon-lr"),
        ("--dropout", "--model.dropout, or that of gpt2, encoder-decoder, recurrent"),
        ("--kv-heads", "--model.num-kv-heads"),
    ],
)
def test_a_flag_without_its_branch_is_answered_with_the_whole_name(
    here: Path, capsys: pytest.CaptureFixture[str], flag: str, right: str
) -> None:
    said = refusal(["train", "text.txt", flag, "3"], capsys)
    assert said == f"error: unknown flag {flag}; did you mean {right}?\n"


@pytest.mark.parametrize(
    ("flags", "changed"),
    [
        (["--lr", "0.5", "--prompt=Once"], {"optimizer.lr": 0.5, "watch.prompt": "Once"}),
        (
            ["--layers", "3", "--heads=4", "--d_model", "32", "--vocab-size", "300"],
            {
                "model.num_layers": 3,
                "model.num_heads": 4,
                "model.d_model": 32,
                "model.vocab_size": 300,
            },
        ),
        (["--architecture", "gpt2", "--layers", "3"], {"gpt2.num_layers": 3}),
        (
            ["--layers", "3", "--architecture=encoder-decoder"],
            {"encoder_decoder.num_encoder_layers": 3, "encoder_decoder.num_decoder_layers": 3},
        ),
    ],
)
def test_short_names_stand_for_settings_of_the_model_that_is_trained(
    here: Path, flags: list[str], changed: dict[str, object]
) -> None:
    config, _ = parse(["--config", "recipe.yaml", *flags], "trafo train")
    before = load(TrainConfig, here / "recipe.yaml")
    settings, old = flatten(to_tree(config)), flatten(to_tree(before))
    found = {key: value for key, value in settings.items() if value != old[key]}
    assert {key: value for key, value in found.items() if key != "architecture"} == changed


def test_short_names_want_values_and_models_that_have_them(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "--model.num-layers: expected int, got 'x'" in refusal([*TRAIN, "--layers", "x"], capsys)
    assert "--model.num-layers needs a value" in refusal([*TRAIN, "--layers"], capsys)
    flags = ["--architecture", "recurrent", "--heads", "4"]
    assert "unknown flag --heads" in refusal([*TRAIN, *flags], capsys)


def test_help_is_short_and_help_all_complete(capsys: pytest.CaptureFixture[str]) -> None:
    def page(*argv: str) -> str:
        assert main(["train", *argv]) == 0
        return " ".join(capsys.readouterr().out.split())

    short, gpt2, full = page("--help"), page("--architecture", "gpt2", "-h"), page("--help-all")
    keys = "budget steps batch-size model.d-model model.num-layers model.num-heads seed out"
    for key in (*keys.split(), "model.context-length", "model.vocab-size", "lr", "optimizer.name"):
        assert f"--{key} " in short
    for flag in ("--threads INT", "--prompt STR", "--config", "--help-all", "--layers"):
        assert flag in short
    assert "peak learning rate of AdamW and SGD (automatic)" in short
    assert "--watch.log-every" not in short
    assert "--gpt2." not in short
    assert "--gpt2.num-layers" in gpt2
    assert "--model." not in gpt2
    assert all(f"{setting.flag}" in full for setting in fields_table(TrainConfig)[1:])


def test_fields_and_invalid_utf8_are_read_as_by_the_tokenizer(here: Path) -> None:
    (here / "a.jsonl").write_bytes(json.dumps({"body": TEXT}).encode() + b"\n")
    (here / "a.txt").write_bytes(TEXT.encode() + b"\xff")
    assert main([*TRAIN, "a.jsonl", "--field", "body", "--out", "runs/json"]) == 0
    assert main([*TRAIN, "a.txt", "--errors", "replace", "--out", "runs/invalid"]) == 0
    config = (here / "runs/json/config.yaml").read_text()
    assert "field: body" in config


def test_verify_resume_refuses_nonsense(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for flag in ("--steps", "--kills"):
        assert flag in refusal(["verify-resume", "recipe.yaml", flag, "0"], capsys)
    assert "gone.yaml" in refusal(["verify-resume", "gone.yaml"], capsys)


words = st.text(st.sampled_from("abc-=./"), min_size=1, max_size=6).filter(
    lambda word: word.partition("=")[0] != "--config"
)


@given(before=st.lists(words), value=st.text(min_size=1, max_size=8), after=st.lists(words))
def test_a_flag_is_taken_out_with_its_value_and_nothing_else(
    before: list[str], value: str, after: list[str]
) -> None:
    for flag in (["--config", value], [f"--config={value}"]):
        arguments = [*before, *flag, *after]
        assert take_value(arguments, "--config") == value
        assert arguments == [*before, *after]
    rest = [*before, *after]
    assert take_value(rest, "--config") is None
    assert rest == [*before, *after]


@given(before=st.lists(words))
def test_a_flag_without_a_value_is_refused(before: list[str]) -> None:
    with pytest.raises(ConfigError, match="--config needs a value"):
        take_value([*before, "--config"], "--config")


def test_what_is_written_as_recipe_is_read_as_the_same(here: Path) -> None:
    config = load(TrainConfig, here / "recipe.yaml")
    (here / "again.yaml").write_text(to_yaml(config))
    assert load(TrainConfig, here / "again.yaml") == config
    assert dataclasses.replace(config, steps=5) != config
