"""The experiments that are shipped can be planned, and each is in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from trafo.experiments.plan import num_parameters, plan_runs
from trafo.experiments.spec import read_experiment

ROOT = Path(__file__).parents[2]
FILES = sorted(path for path in (ROOT / "experiments").glob("*.yaml") if path.stem != "base")


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_shipped_experiment_can_be_planned(file: Path, tmp_path: Path) -> None:
    experiment = read_experiment(file, ("stories.txt",))
    runs = plan_runs(experiment, tmp_path)
    assert experiment.question.endswith("?")
    assert experiment.scaling is not None or len(experiment.seeds) >= 3
    assert len(runs) <= 60
    assert all(num_parameters(run.config) < 1_000_000 for run in runs)
    page = (ROOT / "docs" / "experiments.md").read_text()
    assert f"trafo experiment experiments/{file.name} " in page


def test_swiglu_and_silu_have_the_same_number_of_parameters(tmp_path: Path) -> None:
    runs = plan_runs(read_experiment(ROOT / "experiments" / "swiglu.yaml"), tmp_path)
    assert len({num_parameters(run.config) for run in runs}) == 1
