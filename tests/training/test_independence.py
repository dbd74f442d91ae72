"""How a batch is split, over accumulation steps or processes, changes nothing that is learned."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.processes import run_ranks
from tests.training.conftest import MakeConfig
from torch import Tensor

from trafo.checkpoint.store import CheckpointStore
from trafo.config import to_yaml
from trafo.errors import ConfigError
from trafo.optim.config import ScheduleConfig
from trafo.training import start
from trafo.training.build import build
from trafo.training.config import TrainConfig
from trafo.training.distributed import Ranks
from trafo.training.metrics import read_metrics

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
SECONDS = 240.0


def one_sgd_step(config: TrainConfig) -> tuple[float, float, dict[str, Tensor]]:
    training = build(config, Ranks())
    result = training.step(3, seed=0, rate_factor=1.0)
    weights = {name: tensor.clone() for name, tensor in training.model.state_dict().items()}
    return result.loss, result.grad_norm, weights


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_accumulation_changes_neither_loss_nor_gradient(
    make_config: MakeConfig, dropout: float
) -> None:
    settings = {"optimizer__name": "sgd", "optimizer__lr": 0.5, "batch_size": 8}
    settings["model__dropout"] = dropout
    loss, norm, weights = one_sgd_step(make_config(accumulate=1, **settings))
    for accumulate in (2, 4, 8):
        other_loss, other_norm, others = one_sgd_step(
            make_config(accumulate=accumulate, **settings)
        )
        assert abs(other_loss - loss) < 1e-6
        assert abs(other_norm - norm) < 1e-5
        assert max((weights[name] - others[name]).abs().max() for name in weights) < 1e-6


def test_the_loss_is_the_mean_over_the_batch(make_config: MakeConfig) -> None:
    """By torch's own cross-entropy, over all rows at once."""
    training = build(make_config(accumulate=2), Ranks())
    ids, targets = training.task.batch(0, 3, 0, 1, training.device).inputs
    with torch.no_grad():
        logits = training.model(ids)
        expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
    assert training.step(3, seed=0, rate_factor=1.0).loss == pytest.approx(
        float(expected), abs=1e-5
    )


def test_a_batch_that_cannot_be_split_is_refused(make_config: MakeConfig) -> None:
    with pytest.raises(ConfigError, match=r"batch_size 4 is not a multiple of accumulate 3"):
        make_config(accumulate=3)


def on_two(config: TrainConfig, tmp_path: Path, *command: str, by_torchrun: bool = False) -> None:
    """Let two processes train a config, or do what else is asked."""
    if not command:
        recipe = tmp_path / f"{(config.out or tmp_path).name}.yaml"
        recipe.write_text(to_yaml(config))
        command = ("train", "--config", str(recipe))
    if not by_torchrun:
        run_ranks(list(command), tmp_path / "said.txt")
        return
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [*TORCHRUN, "-m", "trafo", *command, "--quiet"],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env=environment,
    )
    assert done.returncode == 0, done.stderr


def losses(config: TrainConfig) -> list[tuple[int, str, float]]:
    assert config.out is not None
    records = read_metrics(config.out / "metrics.jsonl")
    return [(record["step"], record["kind"], record["loss"]) for record in records]


def assert_close(one: TrainConfig, other: TrainConfig, within: float = 1e-5) -> None:
    ours, theirs = losses(one), losses(other)
    assert [entry[:2] for entry in ours] == [entry[:2] for entry in theirs]
    differences = [abs(mine[2] - yours[2]) for mine, yours in zip(ours, theirs, strict=True)]
    assert max(differences) < within
    weights, others = (
        CheckpointStore((config.out or Path()) / "checkpoints").newest().snapshot.weights
        for config in (one, other)
    )
    assert weights.keys() == others.keys()
    assert max((weights[name] - others[name]).abs().max() for name in weights) < 1e-4


@pytest.fixture
def halfway() -> dict[str, Any]:
    """Changes to a config so that 6 steps are the first half of 12."""
    return {
        "accumulate": 2,
        "model__dropout": 0.1,
        "checkpoint__every": 6,
        "watch__evaluate_every": 6,
        "watch__evaluate_tokens": 64,
        "optimizer__schedule": ScheduleConfig(name="constant"),
    }


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_processes_learn_what_one_learns_and_one_goes_on_from_there(
    make_config: MakeConfig, tmp_path: Path, halfway: dict[str, Any], parallel: str
) -> None:
    halfway["machine__parallel"] = parallel
    one, two = make_config("one", **halfway), make_config("two", steps=6, **halfway)
    start.train(one)
    on_two(two, tmp_path, by_torchrun=parallel == "ddp")
    assert CheckpointStore((two.out or tmp_path) / "checkpoints").steps() == [0, 6]
    start.resume(two.out or "", make_config("two", **halfway))
    assert_close(one, two)


@pytest.mark.slow
def test_two_processes_go_on_from_what_one_has_saved(
    make_config: MakeConfig, tmp_path: Path, halfway: dict[str, Any]
) -> None:
    """With FSDP, where each must find its own part in what is whole; Muon keeps other things."""
    halfway |= {"machine__parallel": "fsdp", "optimizer__name": "muon"}
    one, half = make_config("one", **halfway), make_config("half", steps=6, **halfway)
    start.train(one)
    start.train(half)
    on_two(half, tmp_path, "resume", str(half.out), "--steps", "12")
    assert_close(one, half)


def test_the_number_of_threads_changes_losses_by_rounding_only(make_config: MakeConfig) -> None:
    """A fixed one, and one that is tried on the way: at least both numbers do some steps."""
    used, losses = set[int](), []
    before = torch.get_num_threads()
    try:
        for number in (1, None):
            torch.set_num_threads(2)
            training = build(make_config(machine__threads=number), Ranks())
            losses.append([])
            for step in range(8):
                losses[-1].append(training.step(step, seed=0, rate_factor=1.0).loss)
                used |= {torch.get_num_threads()} if number is None else set()
    finally:
        torch.set_num_threads(before)
    assert used == {1, 2}
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
