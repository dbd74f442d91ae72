"""The runs of an experiment, and what is held equal between them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.experiments.conftest import MakeExperiment

from trafo.account import Workload, account
from trafo.errors import ConfigError
from trafo.experiments.cost import predict, total_seconds
from trafo.experiments.plan import num_parameters, plan_runs
from trafo.models import build_model
from trafo.training.fit_memory import needed_bytes


def test_every_arm_point_and_seed_is_a_run(make: MakeExperiment, tmp_path: Path) -> None:
    experiment = make(
        arms={"pre": {}, "post": {"model.norm_placement": "post"}},
        sweep={"optimizer.lr": [0.001, 0.01]},
        seeds=2,
    )
    runs = plan_runs(experiment, tmp_path)
    assert [run.name for run in runs] == [
        f"{arm}_lr{lr}_seed{seed}"
        for seed in (0, 1)
        for arm in ("pre", "post")
        for lr in (0.001, 0.01)
    ]
    last = runs[-1].config
    assert (last.model.norm_placement, last.optimizer.lr, last.seed) == ("post", 0.01, 1)
    assert last.out == tmp_path / runs[-1].name
    assert len({run.config.watch.evaluate_tokens for run in runs}) == 1


@pytest.mark.parametrize("equal", ["tokens", "flops"])
def test_tokens_and_flops_are_held_equal(
    make: MakeExperiment, tmp_path: Path, base: dict[str, Any], equal: str
) -> None:
    experiment = make(
        base=base | {"steps": 1000},
        arms={"small": {}, "large": {"model": {"d_model": 48, "num_layers": 3}}},
        sweep={"batch_size": [1, 4, 16]},
        equal=equal,
    )
    amounts = []
    for run in plan_runs(experiment, tmp_path):
        config = run.config
        work = Workload(seq=config.seq, batch_size=config.batch_size)
        result = account(config.model_config, work)
        amounts.append(config.steps * (result.tokens if equal == "tokens" else result.flops))
    assert max(amounts) / min(amounts) < 1.02


@pytest.mark.parametrize("width", ["model.d_ff", "model.d_model"])
def test_matched_arms_have_as_many_parameters(
    make: MakeExperiment, tmp_path: Path, base: dict[str, Any], width: str
) -> None:
    model = base["model"] | {"d_model": 128, "num_layers": 3}
    experiment = make(
        base=base | {"model": model},
        arms={
            "swiglu": {},
            "silu": {"model.feed_forward": "silu", "match": "parameters", "width": width},
        },
    )
    first, second = (run.config for run in plan_runs(experiment, tmp_path))
    counts = [
        sum(p.numel() for p in build_model(config.model_config, "meta").parameters())
        for config in (first, second)
    ]
    assert counts[0] == num_parameters(first)
    assert counts[1] == pytest.approx(counts[0], rel=0.03)
    assert first.model.feed_forward_size != second.model.feed_forward_size


@pytest.mark.parametrize(
    ("asked", "line"),
    [
        ({"arms": {"a": {}, "b": {}}}, "tiny: a and b are the same run"),
        ({"arms": {"a": {"steps": 3}}, "equal": "tokens"}, "sets steps, which equal: tokens"),
        ({"arms": {"a": {"seed": 3}}}, "sets seed, which seeds decides"),
        ({"sweep": {"model.num_heads": [3]}}, "d_model"),
        ({"sweep": {"model.heads": [3]}}, "unknown key model.heads; did you mean"),
        (
            {"arms": {"a": {}, "b": {"match": "parameters", "width": "model.num_layers"}}},
            "width is model.num_layers; choose model.d_ff or model.d_model",
        ),
        (
            {
                "arms": {
                    "a": {"model.d_ff": 20},
                    "b": {"match": "parameters", "width": "model.d_model"},
                }
            },
            "no model.d_model gives",
        ),
    ],
)
def test_what_cannot_be_is_one_line(
    make: MakeExperiment, tmp_path: Path, asked: dict[str, Any], line: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        plan_runs(make(**asked), tmp_path)
    (said,) = str(caught.value).splitlines()
    assert line in said
    assert said.startswith("tiny: ")


def test_predictions_grow_with_steps_and_batch(make: MakeExperiment, tmp_path: Path) -> None:
    experiment = make(sweep={"batch_size": [1, 64], "steps": [100, 1000]})
    runs = plan_runs(experiment, tmp_path)
    found = predict(runs, threads=1)
    short, long, _, large = (found[run.name] for run in runs)
    assert long.seconds > short.seconds
    assert long.memory == short.memory < large.memory == needed_bytes(runs[-1].config)


def test_the_total_is_that_of_a_queue() -> None:
    assert total_seconds([3, 1, 1, 1], jobs=2) == 3
    assert total_seconds([1, 1, 1, 3], jobs=2) == 4
    assert total_seconds([2, 3, 4], jobs=1) == 9
    assert total_seconds([], jobs=2) == 0
