"""Empty paths, and sizes that no machine has: one line, before anything is done."""

from __future__ import annotations

from pathlib import Path

import pytest

from trafo.cli.main import main

COMMANDS = [
    *(
        ["train", ""],
        ["train", "a.txt", ""],
        ["train", "--pairs", "", ""],
        ["train", "--config", ""],
    ),
    *(["train", "--config="], ["train", "a.txt", "--out", ""], ["train", "a.txt", "--data.cache="]),
    *(["resume", ""], ["eval", "", "a.txt"], ["eval", "run", ""], ["translate", ""], ["score", ""]),
    *(["generate", ""], ["generate", "--prompts", ""], ["chat", ""], ["export", "--out", ""]),
    *(["average", ""], ["runs", ""], ["plot", ""], ["verify-resume", ""], ["demo", "--text", ""]),
    *(["serve", ""], ["tokenizer", "train", "", "--vocab-size", "300", "--out", "x"]),
    *(["tokenizer", "encode", "", "a.txt"], ["tokenizer", "report", "", "a.txt"]),
    *(["tokenizer", "convert", "", "x"], ["tokenizer", "convert", "x", ""]),
    *(["tokenizer", "decode", "", "1"], ["account", ""], ["experiment", ""]),
]


@pytest.mark.parametrize("argv", COMMANDS, ids=" ".join)
def test_an_empty_path_is_refused(
    argv: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    """It would mean this folder, which a variable that is not set should not."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("text")
    assert main(argv) == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert said.startswith("error: ")
    assert said.count("\n") == 1
    assert "empty" in said or "needs a" in said
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--model.d-model", "1000000", "--model.num-heads", "2"], "TB, this machine has"),
        (["--model.vocab-size", "1000000000000"], "PB, this machine has"),
        (["--model.d-model", "1" + "0" * 12, "--model.num-heads", "2"], "can be counted"),
        (["--model.d-model", "1" + "0" * 30, "--model.num-heads", "2"], "must be at most 2^40"),
        (["--optimizer.lr", "inf"], "optimizer.lr is inf"),
        (["--optimizer.muon-lr", "nan"], "optimizer.muon_lr is nan"),
        (["--budget", "9" * 400], "a duration of inf s is too long"),
    ],
)
def test_sizes_and_rates_beyond_all_bounds(
    flags: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.txt").write_text("some words\n" * 2000)
    argv = ["train", "a.txt", "--machine.peak-flops", "1e9", "--out", "run", *flags]
    assert main(argv) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("error: ")
    assert words in said
    assert not (tmp_path / "run").exists()


def test_deep_nesting_is_refused(tmp_path: Path, capsys) -> None:
    path = tmp_path / "deep.yaml"
    path.write_text("model: " + "[" * 20_000)
    assert main(["train", "a.txt", "--config", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
