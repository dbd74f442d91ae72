"""A run that was ended at any instant and resumed is, bit for bit, one that was not."""

from __future__ import annotations

import json
import random
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tests.processes import start_trafo
from tests.training.conftest import MakeConfig

from trafo.checkpoint import store
from trafo.config import to_yaml
from trafo.training import loop, start
from trafo.training.metrics import Record, read_metrics

VARIANTS: dict[str, dict[str, Any]] = {
    "adamw on two threads": {"machine__threads": 2},
    "dropout": {"model__dropout": 0.2},
    "accumulated": {"accumulate": 2, "model__dropout": 0.1},
    "muon": {"optimizer__name": "muon", "model__qk_norm": True},
    "tied gpt2": {"architecture": "gpt2", "gpt2__vocab_size": 300, "gpt2__d_model": 16,
                  "gpt2__num_layers": 1, "gpt2__num_heads": 2, "gpt2__context_length": 16},
}  # fmt: skip


class Killed(BaseException):
    """Not caught by any code, like a kill."""


def test_the_instant_of_a_kill_does_not_matter(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, variant: dict[str, Any]
) -> None:
    straight = make_config("straight", **variant)
    assert start.train(straight).stopped_by is None
    at_step = random.Random(repr(variant)).randrange(12)
    broken = make_config("broken", **variant)
    _train_until(broken, at_step, monkeypatch)
    assert start.resume(broken.out or "").stopped_by is None
    assert_same_run(straight.out, broken.out)


@pytest.fixture(params=VARIANTS.values(), ids=list(VARIANTS))
def variant(request: pytest.FixtureRequest) -> dict[str, Any]:
    value: dict[str, Any] = request.param
    return value


@pytest.mark.parametrize("file", ["model.safetensors", "training.safetensors", "manifest.json"])
def test_a_kill_in_the_middle_of_saving_leaves_the_checkpoint_before(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    straight = make_config("straight")
    start.train(straight)
    broken = make_config("broken")
    with monkeypatch.context() as patch:
        saved = _kill_while_writing(patch, file, at_save=3)
        with pytest.raises(Killed):
            start.train(broken)
        assert saved == [0, 3, 6]
    assert broken.out is not None
    assert store.CheckpointStore(broken.out / "checkpoints").steps() == [0, 3]
    start.resume(broken.out)
    assert_same_run(straight.out, broken.out)


def test_kill_9_at_random_instants(make_config: MakeConfig, tmp_path: Path) -> None:
    straight, broken = make_config("straight", steps=60), make_config("broken", steps=60)
    start.train(straight)
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(to_yaml(broken))
    assert broken.out is not None
    command = ["train", "--config", str(recipe)]
    chance = random.Random(5)
    kills = 0
    for _ in range(2):
        process = start_trafo(command, tmp_path / "said.txt")
        if _wait_for_more_steps(broken.out, process):
            time.sleep(chance.uniform(0, 0.3))
        if process.is_alive():
            process.kill()
            kills += 1
        process.join()
        command = ["resume", str(broken.out)]
    start.resume(broken.out)
    assert kills, "the run was over before anybody could kill it"
    assert_same_run(straight.out, broken.out)


def _wait_for_more_steps(run: Path, process: ForkServerProcess) -> bool:
    """Until the metrics have grown, so that every kill finds the run further on."""
    before = _num_records(run)
    deadline = time.monotonic() + 60
    while process.is_alive() and time.monotonic() < deadline:
        if _num_records(run) > before:
            return True
        time.sleep(0.01)
    return False


def _num_records(run: Path) -> int:
    path = run / "metrics.jsonl"
    return len(read_metrics(path)) if path.exists() else 0


def _train_until(config: Any, at_step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Die after the update of a step, before anything is written about it."""
    report = loop.Reporter.step
    with monkeypatch.context() as patch:

        def die(reporter: Any, record: Record, **about: Any) -> None:
            if record["step"] == at_step + 1:
                raise Killed
            report(reporter, record, **about)

        patch.setattr(loop.Reporter, "step", die)
        with pytest.raises(Killed):
            start.train(config)


def _kill_while_writing(patch: pytest.MonkeyPatch, file: str, at_save: int) -> list[int]:
    """Half of a file is written when the process ends, and nothing is cleaned up."""
    saved: list[int] = []
    save = store.CheckpointStore.save

    def count(self: Any, step: int, *args: Any, **kwargs: Any) -> Path:
        saved.append(step)
        return save(self, step, *args, **kwargs)

    def half(path: Path) -> None:
        if path.name == file and len(saved) == at_save:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
            raise Killed

    for name in ("write_tensors", "_write_json"):
        write = getattr(store, name)

        def write_half(path: Path, *args: Any, write: Any = write) -> None:
            write(path, *args)
            half(path)

        patch.setattr(store, name, write_half)
    patch.setattr(store.CheckpointStore, "save", count)
    patch.setattr("trafo.runtime.atomic.shutil.rmtree", lambda *_, **__: None)
    return saved


def assert_same_run(one: Path | None, other: Path | None) -> None:
    """Weights, moments, numbers, losses: all equal, none nearly so."""
    assert one is not None
    assert other is not None
    for name in ("model.safetensors", "training.safetensors"):
        ours, theirs = (_last(run) / name for run in (one, other))
        tensors, expected = load_file(ours), load_file(theirs)
        assert tensors.keys() == expected.keys()
        different = [key for key in tensors if not tensors[key].equal(expected[key])]
        assert not different
    assert _numbers(one) == _numbers(other)
    assert _losses(one) == _losses(other)


def _last(run: Path) -> Path:
    steps = store.CheckpointStore(run / "checkpoints").steps()
    return run / "checkpoints" / f"step-{steps[-1]:08d}"


def _numbers(run: Path) -> dict[str, Any]:
    state = json.loads((_last(run) / "state.json").read_text())
    del state["seconds"], state["config"]["out"]
    return dict(state)


def _losses(run: Path) -> list[tuple[int, str, float, int | None]]:
    records = read_metrics(run / "metrics.jsonl")
    return [(r["step"], r["kind"], r["loss"], r.get("batch")) for r in records]
