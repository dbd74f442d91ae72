"""The first command that anybody runs."""

import re
import shlex
from pathlib import Path

import pytest

from trafo.checkpoint.bundle import load_bundle
from trafo.cli.demo import _prompts_from
from trafo.cli.main import main
from trafo.tokenizer import Tokenizer, train_bpe
from trafo.training.metrics import read_metrics

TEXT = "def add(a, b):\n    return a + b\n<|endoftext|>\n" * 200

RECIPE = """
budget: 1m
batch_size: 2
model: {vocab_size: 300, context_length: 16, d_model: 16, num_layers: 1, num_heads: 2}
watch: {tensorboard: false, log_every: 1, sample_every: 0}
machine: {threads: 1, peak_flops: 1.0e+9}
"""


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "own.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def line(text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    # Compiling kernels may take longer than the budget, which is the model's here.
    Tokenizer(*train_bpe(str(text), 300, [])).encode(TEXT)
    out = Path("runs/de mo")
    words = ["demo", "--out", out, "--text", text, "--config", recipe, "--budget", "4s"]
    return [str(word) for word in words]


@pytest.mark.draws_curves
def test_from_text_to_a_model_that_writes(line, tmp_path, capsys):
    assert main(line) == 0
    shown = capsys.readouterr().out
    for step in ("1/4  text", "2/4  tokenizer", "3/4  tokens", "4/4  model"):
        assert step in shown
    assert "bits per byte" in shown
    # Prompts are the beginnings of lines of the text.
    samples = shown.partition("The model writes:")[2].partition("What next:")[0]
    # A blank line comes before each; in what the model writes, blank lines are indented.
    assert "\n\n    def add(a, b):" not in samples  # two words: too short for a prompt
    assert "\n\n    return a +" in samples
    assert "--prompt 'return a +'" in shown
    assert shown.splitlines()[-1].endswith("serve runs/latest")  # a name that clients can use, too
    run = tmp_path / "runs" / "de mo" / "model"
    assert Path("runs/latest").resolve() == run.resolve()
    losses = [r["loss"] for r in read_metrics(run / "metrics.jsonl") if r["kind"] == "validation"]
    assert losses[-1] < losses[0]
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG")
    bundle = load_bundle(run)
    assert bundle.tokenizer.decode(bundle.tokenizer.encode(TEXT)) == TEXT

    # Again: what exists is used, and not trained again.
    steps = len(losses)
    assert main(line) == 0
    assert "The model writes:" in capsys.readouterr().out
    again = [r["loss"] for r in read_metrics(run / "metrics.jsonl") if r["kind"] == "validation"]
    assert len(again) == steps

    _try_advice(shown, capsys)


def _try_advice(shown, capsys):
    """Each command works as printed."""
    commands = re.findall(r"^    (.*trafo .*)$", shown.partition("What next:")[2], re.MULTILINE)
    assert len(commands) == 4
    assert " serve " in commands.pop()  # the last line; it would not end
    for command in commands:
        arguments = shlex.split(command)
        verb = next(
            i for i, word in enumerate(arguments) if word in ("generate", "resume", "tokenizer")
        )
        if arguments[verb] == "resume":
            arguments[-1] = "5s"  # not ten minutes, here
        assert main(arguments[verb:]) == 0
        assert capsys.readouterr().out


def test_a_text_that_is_not_there(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path / "demo"), "--text", str(tmp_path / "absent")]) == 2
    assert "no such file" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_config_that_is_not_there(text, tmp_path, capsys):
    absent = str(tmp_path / "absent.yaml")
    assert (
        main(["demo", "--out", str(tmp_path / "d"), "--text", str(text), "--config", absent]) == 2
    )
    assert "absent.yaml" in capsys.readouterr().err


@pytest.mark.slow
def test_the_built_in_corpus(tmp_path, capsys):
    assert main(["demo", "--out", str(tmp_path), "--budget", "20s"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"1/4  text\s+1?\d\.\d+ MB", shown)
    assert "The model writes:" in shown


def test_prompts_come_from_all_over_the_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n".join(f"{i} bottles of beer on the wall\n\nshort" for i in range(30)))
    prompts = _prompts_from(path)
    assert prompts == ["0 bottles of", "10 bottles of", "20 bottles of"]
    path.write_text("one\ntwo")
    assert _prompts_from(path) == ["The"]
