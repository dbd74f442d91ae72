"""Runs in processes: interrupted and continued, diverged, failed, halved."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.experiments.conftest import MakeExperiment
from tests.training.test_exact_resume import assert_same_run

from trafo.cli.main import main
from trafo.errors import TrafoError
from trafo.experiments.cost import share_cluster, share_machine
from trafo.experiments.execute import Executor, read_last_record
from trafo.experiments.plan import PlannedRun, plan_runs
from trafo.experiments.results import RESULT, RunResult, read_result
from trafo.experiments.spec import Halving
from trafo.experiments.start import (
    check_unchanged,
    pick_survivors,
    prepare_data,
    run_experiment,
    step_of_rung,
    train_with_halving,
)
from trafo.experiments.worker import has_diverged, train_run
from trafo.training import start


class Impatient:
    """Interrupts when a run has come so far."""

    def __init__(self, step: int | None = None) -> None:
        self.step = step
        self.problems: list[str] = []

    def update(self, active: Sequence[PlannedRun]) -> None:
        if self.step and any(read_last_record(run).get("step", 0) >= self.step for run in active):
            raise KeyboardInterrupt

    def add_ended(self, run: PlannedRun, problem: str | None) -> None:
        self.problems.extend([problem] if problem else [])


def test_interrupted_runs_go_on_bit_for_bit_and_others_are_not_disturbed(
    make: MakeExperiment, base: dict[str, Any], tmp_path: Path
) -> None:
    watch = base["watch"] | {"evaluate_every": 50}
    long = base | {"steps": 100, "checkpoint": {"every": 100}, "watch": watch}
    experiment = make(
        base=long,
        arms={"good": {}, "wild": {"optimizer": {"lr": 1e20, "max_grad_norm": None}}},
    )
    good, wild = plan_runs(experiment, tmp_path / "runs")
    bad = replace(good, config=replace(good.config, out=tmp_path / "file" / "bad"))
    (tmp_path / "file").write_text("a file, where a folder should be")
    prepare_data([good, wild])
    with pytest.raises(KeyboardInterrupt):
        Executor(1, 1, Impatient(step=2)).train([good])
    assert read_result(good.folder) is None
    assert 2 <= read_last_record(good)["step"] < 100
    # The same folders again: one goes on, one diverges, one fails and does not stop the others.
    display = Impatient()
    executor = Executor(2, 1, display)
    executor.train([bad, good, wild])
    assert len(executor.problems) == len(display.problems) == 1
    assert executor.problems[0].startswith("bad: ")
    result = read_result(good.folder)
    assert result is not None
    assert (result.status, result.step) == ("finished", 100)
    assert result.tokens == 100 * 4 * 16
    assert result.loss is not None
    assert result.loss < math.log(300)
    diverged = read_result(wild.folder)
    assert diverged is not None
    assert (diverged.status, diverged.loss) == ("diverged", None)
    assert 1 <= diverged.step < 100
    straight = replace(good.config, out=tmp_path / "straight")
    start.train(straight)
    assert_same_run(straight.out, good.folder)


def test_a_paused_run_is_the_run_it_would_have_been(make: MakeExperiment, tmp_path: Path) -> None:
    (run,) = plan_runs(make(), tmp_path)
    assert train_run(run.config, pause_at=8) is None
    assert read_last_record(run)["step"] == 8
    assert read_result(run.folder) is None
    result = train_run(run.config, pause_at=20)
    assert result is not None
    assert result == read_result(run.folder)
    straight = train_run(replace(run.config, out=tmp_path / "straight"))
    assert straight is not None
    assert_same_run(tmp_path / "straight", run.folder)
    assert result.loss == straight.loss


def test_divergence_is_a_mean_far_above_the_first_loss() -> None:
    assert not has_diverged([6.0, 9.0, 5.0, 4.0])
    assert not has_diverged([6.0, 90.0])
    assert has_diverged([6.0, 5.0, 7.2, 7.2, 7.2])
    assert not has_diverged([6.0, 5.0, 6.9, 6.9, 6.9])


def test_a_run_with_other_settings_is_not_continued(make: MakeExperiment, tmp_path: Path) -> None:
    (run,) = plan_runs(make(), tmp_path)
    run.folder.mkdir()
    from trafo.config import to_yaml

    config = run.folder / "config.yaml"
    config.write_text(to_yaml(replace(run.config, machine=replace(run.config.machine, threads=9))))
    check_unchanged([run])
    config.write_text(to_yaml(replace(run.config, batch_size=8)))
    with pytest.raises(
        TrafoError, match="was started with a different batch_size; choose another --out"
    ):
        check_unchanged([run])


def test_data_that_does_not_suit_is_told_before_anything_starts(
    make: MakeExperiment, tmp_path: Path
) -> None:
    experiment = make(sweep={"batch_size": [4, 10**6]})
    with pytest.raises(TrafoError) as caught:
        run_experiment(experiment, tmp_path)
    (line,) = str(caught.value).splitlines()
    assert "batch_size is 1,000,000, the data has" in line
    assert not any(tmp_path.iterdir())


def test_the_machine_is_shared_without_fighting_for_cores(
    make: MakeExperiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(8)))
    runs = plan_runs(make(seeds=3), tmp_path)
    assert share_machine(runs) == (3, 2)
    assert share_machine(runs, 1) == (1, 8)
    assert share_machine(runs, threads=4) == (2, 4)
    assert share_machine(runs, 3, threads=1) == (3, 1)
    assert share_machine(runs, threads=100) == (1, 100)
    monkeypatch.setattr("trafo.experiments.cost.available_memory", lambda: 1_000_000_000)
    assert share_machine(runs)[0] == 2
    monkeypatch.setattr("trafo.experiments.cost.available_memory", lambda: 1_000_000)
    with pytest.raises(TrafoError, match=r"a run needs .* of memory, 1.00 MB are free"):
        share_machine(runs)


def test_a_cluster_is_shared_among_the_runs() -> None:
    runs: list[Any] = [None] * 6
    for cpus, jobs, at_a_time, threads in (
        (4, None, 4, 1),
        (16, None, 6, 1),
        (16, 2, 2, 8),
        (2, 3, 2, 1),
    ):
        assert share_cluster(runs, cpus, jobs) == (at_a_time, threads)
    assert share_cluster(runs, 16, threads=8) == (2, 8)
    assert share_cluster(runs, 16, 3, threads=2) == (3, 2)


class Fake(Executor):
    """Makes runs at once: their losses are their learning rates."""

    def train(self, runs: Sequence[PlannedRun], pause_at: dict[str, int] | None = None) -> None:
        import json

        for run in runs:
            step = (pause_at or {}).get(run.name, run.config.steps)
            run.folder.mkdir(exist_ok=True)
            record = {"step": step, "kind": "validation", "loss": run.point["optimizer.lr"]}
            with (run.folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(record) + "\n")
            if step == run.config.steps:
                loss = record["loss"]
                RunResult(status="finished", step=step, tokens=0, loss=loss).save(run.folder)


def test_halving_stops_the_worse_half_at_each_rung(make: MakeExperiment, tmp_path: Path) -> None:
    rates = [5.0, 1.0, 3.0, 2.0]
    runs = plan_runs(make(sweep={"optimizer.lr": rates}, seeds=2), tmp_path)
    train_with_halving(Fake(1, 1, Impatient()), runs, Halving(at=(0.25, 0.5)))
    results = {(run.point["optimizer.lr"], run.seed): read_result(run.folder) for run in runs}
    ends = {key: (r.status, r.step) for key, r in results.items() if r is not None}
    first, second = step_of_rung(runs[0], 0.25), step_of_rung(runs[0], 0.5)
    for seed in (0, 1):
        assert ends[5.0, seed] == ends[3.0, seed] == ("stopped", first)
        assert ends[2.0, seed] == ("stopped", second)
        assert ends[1.0, seed] == ("finished", 20)


def test_the_best_of_the_first_arm_always_goes_on(make: MakeExperiment, tmp_path: Path) -> None:
    arms = {name: {"optimizer.lr": rate} for name, rate in (("a", 0.3), ("b", 0.2), ("c", 0.1))}
    runs = plan_runs(make(arms=arms), tmp_path)
    losses = {run.name: run.config.optimizer.lr for run in runs}
    assert pick_survivors(runs, losses, 0.3) == {"a", "c"}
    assert pick_survivors(runs, losses | {"c_seed0": math.inf}, 0.3) == {"a", "b"}


def test_a_damaged_result_says_so(tmp_path: Path) -> None:
    (tmp_path / RESULT).write_text("{")
    with pytest.raises(TrafoError, match="is damaged"):
        read_result(tmp_path)


@pytest.mark.slow
def test_a_killed_experiment_goes_on_where_it_was(base: dict[str, Any], tmp_path: Path) -> None:
    import yaml

    file, out = tmp_path / "tiny.yaml", tmp_path / "out"
    asked = {"base": base | {"steps": 300, "checkpoint": {"every": 50}}, "seeds": 2}
    file.write_text(yaml.safe_dump(asked))
    command = [sys.executable, "-m", "trafo", "experiment", str(file), "--out", str(out)]
    process = subprocess.Popen([*command, "--jobs", "1"], stderr=subprocess.PIPE, text=True)
    _wait_for(out / "base_seed1" / "metrics.jsonl", process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:  # its worker saves and ends
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if "is being written by another process" not in done.stderr:
            break
    assert done.returncode == 0, done.stderr
    assert "1 of 2 runs are done already" in done.stderr
    straight = tmp_path / "straight"
    assert main(["experiment", str(file), "--out", str(straight), "--quiet"]) == 0
    assert_same_run(straight / "base_seed1", out / "base_seed1")


def _wait_for(file: Path, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if file.exists():
            return
        time.sleep(0.05)
    raise AssertionError(f"{file} did not come")


@pytest.mark.slow
def test_from_python_the_same_in_a_line(base: dict[str, Any], tmp_path: Path) -> None:
    import pandas

    import trafo

    asked = {"base": base, "sweep": {"model.d_model": [8, 16, 24], "steps": [8, 12, 20]}}
    asked |= {"scaling": {"factor": 2, "resamples": 10}}
    folder = tmp_path / "sizes"
    found = trafo.experiment(asked, base["text"], out=folder)
    table = pandas.DataFrame(found.records)
    assert list(table["status"]) == ["finished"] * 10
    assert table["arm"].iloc[-1] == "larger"
    flops = table["flops"]
    assert flops.iloc[-1] == pytest.approx(2 * flops[:-1].max(), rel=0.1)
    said = (folder / "report.md").read_text()
    assert "## Scaling law" in said
    assert "Measured: " in said
    assert (folder / "isoflop.png").is_file()
    before = (folder / "results.csv").read_text()
    again = trafo.experiment(asked, base["text"], out=folder)  # nothing is made twice
    assert again.records == found.records
    assert (folder / "results.csv").read_text() == before
    assert len(list(tmp_path.rglob("config.yaml"))) == 10
