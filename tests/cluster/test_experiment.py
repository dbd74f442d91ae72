"""An experiment on a cluster gives the runs of one machine, bit for bit."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.conftest import MakeExperiment, base, make
from tests.training.test_exact_resume import assert_same_run

from trafo.experiments.execute import LiveTable, read_last_record
from trafo.experiments.plan import plan_runs
from trafo.experiments.start import run_experiment
from trafo.experiments.worker import train_run

__all__ = ["base", "make"]  # fixtures


def occupy_other_nodes(ray: Any, free: str) -> Any:
    """Take the CPU of the node that is not `free`; cancelling the reference gives it back."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    [other] = [
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and node["Resources"].get("CPU") and node["NodeID"] != free
    ]
    there = NodeAffinitySchedulingStrategy(other, soft=False)
    return ray.remote(num_cpus=1)(sleep).options(scheduling_strategy=there).remote()


def sleep() -> None:
    time.sleep(1e6)


def test_an_experiment_gives_the_same_results_though_a_node_dies(
    doomed_node: Any,
    ray: Any,
    make: MakeExperiment,
    base: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    rare = {"watch": base["watch"] | {"evaluate_every": 200}, "checkpoint": {"every": 20}}
    experiment = make(base=base | rare | {"steps": 300})
    (here,) = plan_runs(experiment, tmp_path / "here")
    train_run(here.config)
    occupied = occupy_other_nodes(ray, free=doomed_node.id)
    update = LiveTable.update

    def update_and_kill(watch: LiveTable, active: Any) -> None:
        update(watch, active)
        if not doomed_node.is_dead and any(
            read_last_record(run).get("step", 0) > 20 for run in active
        ):
            doomed_node.kill()
            ray.cancel(occupied, force=True)

    monkeypatch.setattr(LiveTable, "update", update_and_kill)
    there = run_experiment(experiment, tmp_path / "there", on="ray")
    assert "its node died; it resumes elsewhere" in capsys.readouterr().err
    (run,) = there.runs
    assert_same_run(here.folder, run.folder)
    assert (tmp_path / "there" / "report.html").exists()
