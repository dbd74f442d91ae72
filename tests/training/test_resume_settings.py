"""A checkpoint holds the settings it was made with: what may change is said, the rest refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tests.training.conftest import MakeConfig
from tests.training.test_exact_resume import assert_same_run

from trafo.checkpoint.export import export_model
from trafo.checkpoint.store import CheckpointStore
from trafo.cli.main import main
from trafo.config import fields_table, flatten, to_tree, with_values
from trafo.errors import ConfigError
from trafo.generate.engine.build import supports_kernels
from trafo.models import CausalLM, TransformerLM
from trafo.models.transformer_lm import TransformerLMConfig
from trafo.training import start
from trafo.training.config import ON_RESUME, TrainConfig, can_change
from trafo.training.run import Run

KEYS = [setting.key for setting in fields_table(TrainConfig)]


def test_there_is_a_decision_for_every_setting() -> None:
    assert all(can_change(key) in (True, False) for key in KEYS)
    stale = [k for k in ON_RESUME if not any(f"{key}.".startswith(f"{k}.") for key in KEYS)]
    assert not stale


def test_what_may_change_in_a_model_does_not_change_its_function() -> None:
    """And most of what is fixed does: so it is not fixed for nothing."""
    config = TransformerLMConfig(
        vocab_size=50, context_length=8, d_model=16, num_layers=1, num_heads=2, window=4
    )
    others: dict[str, Any] = {"num_heads": 4, "rope_theta": 100.0, "norm_eps": 0.1, "window": 2}
    ids = torch.arange(8)[None]
    model = TransformerLM.from_config(config)

    def is_same(change: dict[str, Any]) -> bool:
        other = TransformerLM.from_config(dataclasses.replace(config, **change)).eval()
        other.load_state_dict(model.state_dict())
        return torch.allclose(other(ids), model.eval()(ids))

    assert can_change("model.dropout")
    assert is_same({"dropout": 0.5})
    for name, value in others.items():
        assert not can_change(f"model.{name}")
        assert not is_same({name: value})


@pytest.fixture
def trained(make_config: MakeConfig) -> Run:
    return start.train(make_config(steps=4, checkpoint__every=4))


def edit(run: Run, change: Callable[[dict[str, Any]], object]) -> None:
    tree = yaml.safe_load(run.config_file.read_text())
    change(tree)
    run.config_file.write_text(yaml.safe_dump(tree, sort_keys=False))


def put(run: Run, key: str, value: object) -> None:
    branch, _, name = key.rpartition(".")
    edit(run, lambda tree: (tree[branch] if branch else tree).update({name: value}))


def without_config(run: Run) -> None:
    """As an older version has written its checkpoints."""
    for path in run.checkpoint_folder.glob("step-*"):
        state, manifest = (
            json.loads((path / f"{name}.json").read_text()) for name in ("state", "manifest")
        )
        del state["config"]
        data = json.dumps(state).encode()
        (path / "state.json").write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        manifest["files"]["state.json"] = {"bytes": len(data), "sha256": digest}
        (path / "manifest.json").write_text(json.dumps(manifest))


FIXED = {"model.num_heads": 4, "model.rope_theta": 5e5, "model.norm_eps": 1e-3, "seed": 7,
         "model.context_length": 32, "context_length": 8, "optimizer.name": "sgd", "out": "other",
         "data.held_out": 0.2}  # fmt: skip


@pytest.mark.parametrize("old", [False, True], ids=["", "old checkpoint"])
@pytest.mark.parametrize("way", ["file", "flag"])
def test_what_was_learned_with_it_is_refused(
    trained: Run, capsys: pytest.CaptureFixture[str], way: str, old: bool
) -> None:
    if old:
        without_config(trained)
    had = flatten(to_tree(trained.read_config()))
    text = trained.config_file.read_text()
    for key, value in FIXED.items():
        flags = [f"--{key.replace('_', '-')}", str(value)] if way == "flag" else []
        if way == "file":
            if old and not key.startswith("model"):
                continue  # there is nothing to compare it with
            put(trained, key, value)
        assert main(["resume", str(trained.path), *flags, "--steps", "8"]) == 2
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert said.startswith(f"error: {key} is {value}, this run has {had[key]}".split("e-")[0])
        assert "start a new run" in said
        trained.config_file.write_text(text)
    assert CheckpointStore(trained.checkpoint_folder).steps() == [0, 4]


def test_what_may_change_is_applied_and_said(
    trained: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = {"steps": 6, "optimizer.lr": 1e-4, "batch_size": 8, "model.dropout": 0.1,
               "label_smoothing": 0.1, "accumulate": 2, "watch.log_every": 2}  # fmt: skip
    config = with_values(trained.read_config(), nested_of(changes), "test")
    run = start.resume(trained.path, config)
    said = " ".join(capsys.readouterr().err.split())
    assert "changed: steps 4 -> 6, batch_size 4 -> 8, accumulate 1 -> 2" in said
    assert "optimizer.lr 0.003 -> 0.0001" in said
    assert run.metrics[-1]["step"] == 6
    assert next(r["lr"] for r in reversed(run.metrics) if r["kind"] == "train") <= 1e-4
    start.resume(trained.path)
    assert "changed" not in capsys.readouterr().err


def nested_of(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        branch, _, name = key.rpartition(".")
        (tree.setdefault(branch, {}) if branch else tree)[name] = value
    return tree


def cut(lines: int) -> Callable[[Path], object]:
    return lambda path: path.write_text("".join(path.read_text().splitlines(True)[:lines]))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "cut off": cut(60),
    "cut off in a line": lambda path: path.write_bytes(path.read_bytes()[:1500]),
    "empty": cut(0),
    "gone": lambda path: path.unlink(),
    "zeros": lambda path: path.write_bytes(bytes(500)),
    "not UTF-8": lambda path: path.write_bytes(b"\xff\xfe" + path.read_bytes()),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=list(DAMAGES))
def test_a_damaged_config_is_restored_from_the_checkpoint(
    make_config: MakeConfig,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[Path], object],
) -> None:
    config = make_config("damaged", steps=2, model__dropout=0.1, optimizer__lr=2e-3, seed=3)
    run = start.train(config)
    before = run.config_file.read_text()
    damage(run.config_file)
    assert main(["resume", str(run.path)]) == 0
    said = capsys.readouterr().err
    assert said.count("using the copy of it in the newest checkpoint") == 1
    assert "changed" not in said
    assert run.config_file.read_text() == before


def test_a_lost_section_is_noticed_and_training_stays_exact(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    straight, broken = (make_config(name, optimizer__name="muon") for name in ("one", "two"))
    for config in (straight, broken):
        start.train(dataclasses.replace(config, steps=6))
    edit(Run(broken.out or ""), lambda tree: tree.pop("optimizer"))
    for config in (straight, broken):
        assert main(["resume", str(config.out), "--steps", "12"]) == 0
    assert "settings are missing, the first is optimizer.name" in capsys.readouterr().err
    assert_same_run(straight.out, broken.out)


def test_a_misspelt_key_is_still_an_error(trained: Run) -> None:
    edit(trained, lambda tree: tree.update(stepz=tree.pop("steps")))
    with pytest.raises(ConfigError, match="unknown key stepz"):
        start.resume(trained.path)


def test_an_old_checkpoint_still_resumes(trained: Run) -> None:
    without_config(trained)
    run = start.resume(trained.path, dataclasses.replace(trained.read_config(), steps=8))
    assert run.state is not None
    assert run.state.step == 8


class OtherLM(TransformerLM):
    """A user's own model with the same weights."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return -super().forward(*args, **kwargs)


@pytest.mark.parametrize("ours_wrote_it", [True, False])
def test_a_checkpoint_is_loaded_only_as_the_class_that_wrote_it(
    make_config: MakeConfig,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    ours_wrote_it: bool,
) -> None:
    import trafo
    from trafo.models import registry

    def use_other(patch: pytest.MonkeyPatch) -> None:
        patch.setitem(registry._MODELS, TransformerLMConfig, OtherLM.from_config)

    with monkeypatch.context() as patch:
        if not ours_wrote_it:
            use_other(patch)
        run = start.train(make_config(steps=2))
        model, _ = trafo.load(run.path)
        assert isinstance(model, CausalLM)
        assert type(model) is (TransformerLM if ours_wrote_it else OtherLM)
    if ours_wrote_it:
        use_other(monkeypatch)
    for verb, *flags in (["resume", "--steps", "4"], ["generate", "--prompt", "a"]):
        assert main([verb, str(run.path), *flags]) == 2
        said = capsys.readouterr().err.strip().splitlines()[-1]
        assert "was written by the model class" in said
        assert "OtherLM" in said


def test_kernels_and_exports_do_not_take_a_class_for_ours(tmp_path: Path) -> None:
    config = TransformerLMConfig(vocab_size=50, context_length=8, d_model=16, num_heads=2)
    other = OtherLM.from_config(config)
    assert type(other) is OtherLM
    assert supports_kernels(TransformerLM.from_config(config))
    assert not supports_kernels(other)
    with pytest.raises(ConfigError, match="OtherLM is not one of trafo's models"):
        export_model(other, tmp_path / "out")
