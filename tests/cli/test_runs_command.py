"""`trafo runs` and `trafo plot`, on runs that were written here instead of trained."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from trafo.cli.main import main
from trafo.models import TransformerLM, TransformerLMConfig
from trafo.optim.config import OptimizerConfig
from trafo.training.config import TrainConfig
from trafo.training.run import Run

MODEL = TransformerLMConfig(
    vocab_size=280, context_length=8, d_model=8, num_layers=1, num_heads=2, d_ff=16
)
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_run(name: str, losses: Sequence[float], age: int = 0) -> Run:
    """A run with these validation losses, one after each step, changed `age` seconds ago."""
    config = TrainConfig(
        text=("books/poems.txt",),
        out=Path("runs", name),
        model=MODEL,
        optimizer=OptimizerConfig(lr=3e-4),
    )
    run = Run.new(config)
    records = [record for step, loss in enumerate(losses, 1) for record in _records(step, loss)]
    run.metrics_file.write_text("".join(json.dumps(record) + "\n" for record in records))
    os.utime(run.path, (1e9 - age, 1e9 - age))
    return run


def _records(step: int, loss: float) -> list[dict[str, object]]:
    about = {"step": step, "seconds": 60.0 * step}
    train = {"kind": "train", "loss": loss - 0.1, "tokens_per_second": 1234.0}
    return [about | train, about | {"kind": "validation", "loss": loss, "bits_per_byte": loss / 3}]


def test_a_table_of_what_was_trained_on_what_and_how_well(here: Path, capsys) -> None:
    assert main(["runs"]) == 0
    assert "no runs in runs yet" in capsys.readouterr().err
    assert main(["runs", "rnus"]) == 2
    assert "rnus: no such folder" in capsys.readouterr().err
    write_run("mine", [3.5, 2.25, 2.5], age=9)
    write_run("other", [3.0])
    assert main(["runs"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    parameters = sum(p.numel() for p in TransformerLM(280, 8, 8, 1, 2, 16).parameters())
    size = f"{parameters / 1000:.2f}k"
    assert lines[0][:8] == ["run", "text", "size", "lr", "step", "loss", "best", "bits/B"]
    # newest first; the best validation loss is not the last one
    head = ["runs/other", "poems.txt", size, "0.0003", "1", "2.900", "3.000", "1.000"]
    assert lines[1] == [*head, "1,234", "1m", "00s"]
    assert lines[2][4:8] == ["3", "2.400", "2.250", "0.833"]


def test_the_same_as_json(here: Path, capsys) -> None:
    write_run("mine", [3.5, 2.25, 2.5])
    assert main(["runs", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["run"] == "runs/mine"
    assert row["data"] == ["books/poems.txt"]
    assert (row["optimizer"], row["learning_rate"]) == ("adamw", 3e-4)
    assert (row["step"], row["validation_loss"], row["best_validation_loss"]) == (3, 2.5, 2.25)


def test_a_damaged_run_does_not_hide_the_others(here: Path, capsys) -> None:
    write_run("mine", [3.5])
    write_run("bad", [3.5]).config_file.write_text("a: b: c")
    assert main(["runs"]) == 0
    out, said = capsys.readouterr()
    assert "runs/mine" in out
    assert "runs/bad" in out
    assert "runs/bad/config.yaml: is not YAML" in said


def refusal(argv: list[str], capsys) -> str:
    capsys.readouterr()
    assert main(argv) == 2
    out, said = capsys.readouterr()
    assert out == ""
    return said


def test_plots_of_one_run_and_of_several(here: Path, capsys) -> None:
    assert "runs/latest: no such run" in refusal(["plot"], capsys)
    mine, _ = write_run("mine", [3.0, 2.0]), write_run("other", [3.0])
    assert main(["plot", "runs/mine"]) == 0
    assert capsys.readouterr().out == "runs/mine/loss.png\n"
    assert main(["plot", "runs/mine", "runs/other"]) == 0
    assert main(["plot", "runs/mine", "runs/other", "--out", "both.png"]) == 0
    for name in ("runs/mine/loss.png", "runs.png", "both.png"):
        assert (here / name).read_bytes().startswith(PNG)
    mine.metrics_file.write_text("")
    assert "nothing to plot" in refusal(["plot", "runs/mine"], capsys)
    mine.metrics_file.unlink()
    assert "nothing to plot" in refusal(["plot", "runs/mine"], capsys)


def test_what_is_not_a_run_is_skipped_and_named(here: Path, capsys) -> None:
    write_run("mine", [3.0]).mark_latest()
    write_run("new", [])
    (here / "runs" / "cache").mkdir()
    everything = sorted(map(str, Path("runs").iterdir()))
    assert "runs/latest" in everything
    assert main(["plot", *everything]) == 0
    out, said = capsys.readouterr()
    assert out == "runs/mine/loss.png\n"  # once, though it has two names
    assert said.splitlines() == [
        "skipped runs/cache: not a run",
        "skipped runs/new: not validated yet",
    ]
    assert "runs/cache: not a run" in refusal(["plot", "runs/cache"], capsys)
    assert "not a run" in refusal(["plot", "runs/cache", "runs/nowhere"], capsys)
