"""A folder becomes a model and its tokenizer: a run, one checkpoint, or somebody's damaged one."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch

from trafo.checkpoint.bundle import describe_model, load_bundle
from trafo.checkpoint.snapshot import Snapshot, take_weights
from trafo.checkpoint.store import CheckpointStore
from trafo.errors import FormatError, InputError
from trafo.fast import is_accelerated
from trafo.models import TransformerLMConfig, build_model
from trafo.tokenizer.tokenizer import Tokenizer

CONFIG = TransformerLMConfig(
    vocab_size=256, context_length=8, d_model=8, num_layers=1, num_heads=2, tied_head=True
)
IDS = torch.arange(6)[None]


def save(run: Path, step: int, model: dict[str, object] | None = None, best: bool = False) -> None:
    torch.manual_seed(step)
    weights = take_weights(build_model(CONFIG))
    about = describe_model(build_model(CONFIG), CONFIG) if model is None else model
    store = CheckpointStore(run / "checkpoints")
    store.save(step, Snapshot(weights, {"rng/torch": torch.zeros(1)}), {}, about, is_best=best)


def model_of_step(step: int) -> torch.nn.Module:
    torch.manual_seed(step)
    return build_model(CONFIG).eval()


@pytest.fixture
def run(tmp_path: Path) -> Path:
    Tokenizer({i: bytes([i]) for i in range(256)}, []).save(tmp_path / "run" / "tokenizer")
    save(tmp_path / "run", 1, best=True)
    save(tmp_path / "run", 2)
    return tmp_path / "run"


@torch.no_grad()
def test_a_run_gives_its_newest_or_its_best(run: Path) -> None:
    for best, step in ((False, 2), (True, 1)):
        bundle = load_bundle(run, best=best, fast=best)
        assert bundle.step == step
        assert bundle.source == run / "checkpoints" / f"step-{step:08d}"
        assert not bundle.model.training
        assert is_accelerated(bundle.model) == best
        torch.testing.assert_close(bundle.model(IDS), model_of_step(step)(IDS))
        assert bundle.tokenizer.decode([104, 105]) == "hi"


@torch.no_grad()
def test_one_checkpoint_is_enough(run: Path) -> None:
    bundle = load_bundle(run / "checkpoints" / "step-00000001")
    assert bundle.step == 1
    torch.testing.assert_close(bundle.model(IDS), model_of_step(1)(IDS))


def test_a_damaged_one_is_passed_over(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = run / "checkpoints" / "step-00000002" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    assert load_bundle(run).step == 1
    assert str(path) in capsys.readouterr().err


@pytest.mark.parametrize(
    "about",
    [
        {},
        {"name": "no-such-model", "fields": {}},
        {"name": "transformer-lm", "fields": {"no_such_field": 1}},
        {"name": "transformer-lm", "fields": [1]},
        {"name": "transformer-lm", "fields": {"d_model": "wide"}},
        {"name": ["transformer-lm"], "fields": {}},
    ],
)
def test_what_describes_no_model_is_refused(run: Path, about: dict[str, object]) -> None:
    save(run, 3, about)
    with pytest.raises(FormatError, match="does not describe a model"):
        load_bundle(run / "checkpoints" / "step-00000003")


def test_a_model_larger_than_its_weights_is_refused_before_it_is_built(run: Path) -> None:
    """Somebody's few bytes must not make us ask for all memory there is."""
    about = describe_model(build_model(CONFIG), CONFIG)
    save(run, 3, about | {"fields": about["fields"] | {"vocab_size": 2**40}})
    with pytest.raises(FormatError, match="does not fit"):
        load_bundle(run / "checkpoints" / "step-00000003")


@pytest.mark.parametrize(
    ("path", "complaint"), [("nowhere", "no such run"), ("empty", "not a run, a checkpoint, a")]
)
def test_other_folders_are_refused(tmp_path: Path, path: str, complaint: str) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=complaint):
        load_bundle(tmp_path / path)


@pytest.mark.parametrize("what", ["deleted", "damaged"])
def test_a_run_without_its_tokenizer_says_how_to_restore_it(
    run: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    if what == "deleted":
        shutil.rmtree(run / "tokenizer")
    else:
        (run / "tokenizer" / "vocab.json").write_text("{")
    with pytest.raises(InputError, match=f"{run / 'tokenizer'}: .*`trafo resume {run}` restores"):
        load_bundle(run)
    assert "checkpoint before" not in capsys.readouterr().err  # they are sound


def test_a_damaged_note_of_the_best_or_average_is_said(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoints = run / "checkpoints"
    (checkpoints / "best.json").write_text("{")
    expected = load_bundle(run).step
    assert load_bundle(run, best=True).step == expected
    assert "no checkpoint is marked as the best" in capsys.readouterr().err
    CheckpointStore(checkpoints).save_average(2)
    (checkpoints / "average" / "model.safetensors").write_bytes(b"")
    assert load_bundle(run).step == expected
    assert "using the newest checkpoint instead of their average" in capsys.readouterr().err
