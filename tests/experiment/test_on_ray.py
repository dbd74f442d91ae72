"""An experiment on a cluster gives the runs of one machine, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.cluster.conftest import cluster, doomed_node, ray
from tests.experiment.conftest import MakeExperiment
from tests.train.test_exact_resume import assert_same_run

from trafo.experiment.live import Watch, last_record
from trafo.experiment.start import Share, run_experiment, share_cluster

__all__ = ["cluster", "doomed_node", "ray"]  # fixtures


@pytest.mark.slow
def test_an_experiment_gives_the_same_results_though_a_node_dies(
    doomed_node: Any, make: MakeExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = make(arms={"a": {"steps": 400}, "b": {"steps": 400, "batch_size": 8}})
    here = run_experiment(experiment, tmp_path / "here", 1, quiet=True)
    update = Watch.update

    def update_and_kill(watch: Watch, active: Any) -> None:
        update(watch, active)
        if active and all(last_record(run).get("step", 0) >= 20 for run in active):
            doomed_node.kill()

    monkeypatch.setattr(Watch, "update", update_and_kill)
    there = run_experiment(experiment, tmp_path / "there", on="ray", quiet=True)
    assert [run.name for run in there.runs] == [run.name for run in here.runs]
    assert doomed_node.is_dead
    for ours, other in zip(there.runs, here.runs, strict=True):
        assert_same_run(other.folder, ours.folder)
    assert (tmp_path / "there" / "report.html").exists()


def test_a_cluster_is_shared_among_the_runs() -> None:
    runs: list[Any] = [None] * 6
    for cpus, jobs, at_a_time, threads in (
        (4, None, 4, 1),
        (16, None, 6, 1),
        (16, 2, 2, 8),
        (2, 3, 2, 1),
    ):
        share = share_cluster(runs, cpus, jobs)
        assert (share.jobs, share.threads) == (at_a_time, threads)
    assert share_cluster(runs, 16, threads=8) == Share(2, 8)
    assert share_cluster(runs, 16, 3, threads=2) == Share(3, 2)
