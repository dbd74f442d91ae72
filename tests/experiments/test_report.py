"""What a report says: held to numbers worked out here, and looked at in a real browser."""

from __future__ import annotations

import csv
import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from scipy import stats
from tests.experiments.conftest import MakeExperiment

from trafo.experiments.plan import PlannedRun, plan_runs
from trafo.experiments.report import list_verdicts, write_report
from trafo.experiments.results import (
    RunResult,
    edge_of_stability,
    list_records,
    read_result,
    summarize,
)
from trafo.experiments.spec import Experiment

RATES = [0.001, 0.01, 0.1, 1.0]
LOSSES = {"pre": {0.001: 4.0, 0.01: 3.0, 0.1: 3.5}, "post": {0.001: 4.2, 0.01: 3.4, 0.1: None}}
NOISE = {0: 0.02, 1: -0.03, 2: 0.05}
EXTRA = {0: 0.001, 1: 0.0, 2: -0.002}


def fake(run: PlannedRun, loss: float | None) -> None:
    """A finished or diverged run that was not really trained."""
    run.folder.mkdir(parents=True)
    lines = [
        {"step": step, "kind": "validation", "loss": (loss or 9) + 20 / step, "seconds": step / 7}
        for step in (5, 10, 20)
    ]
    lines = [line | {"bits_per_byte": line["loss"] / 2} for line in lines]
    (run.folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    found: dict[str, Any] = {"seconds": 3.0, "tokens_per_second": 100.0, "peak_memory": 5_000_000}
    if loss is None:
        RunResult(status="diverged", step=12, tokens=768, **found).save(run.folder)
    else:
        found |= {"loss": loss, "bits_per_byte": loss / 2, "perplexity": 2.0}
        RunResult(status="finished", step=20, tokens=1280, **found).save(run.folder)


@pytest.fixture(scope="module")
def done(
    make: MakeExperiment, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Experiment, list[PlannedRun], Path]:
    folder = tmp_path_factory.mktemp("experiment")
    experiment = make(
        question="Which norm <placement> & rate?",
        arms={"pre": {}, "post": {"model.norm_placement": "post"}},
        sweep={"optimizer.lr": RATES},
        seeds=3,
    )
    runs = plan_runs(experiment, folder)
    for run in runs:
        mean = LOSSES[run.arm].get(run.point["optimizer.lr"])
        is_post = run.arm == "post"
        noise = NOISE[run.seed] + (EXTRA[run.seed] if is_post else 0.0)
        fake(run, None if mean is None else mean + noise)
    write_report(summarize(experiment, runs), runs, folder)
    return experiment, runs, folder


def test_the_best_points_are_compared_paired_by_seed(
    done: tuple[Experiment, list[PlannedRun], Path],
) -> None:
    experiment, runs, _ = done
    summary = summarize(experiment, runs)
    assert [cell.name for cell in summary.contenders] == ["pre_lr0.01", "post_lr0.01"]
    pre, post = summary.contenders
    assert summary.reference is pre
    ours = [3.4 + NOISE[seed] + EXTRA[seed] for seed in NOISE]
    theirs = [3.0 + NOISE[seed] for seed in NOISE]
    expected = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    found = summary.difference(post)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    mean = post.estimate("loss")
    assert mean is not None
    low, high = stats.t.interval(0.95, 2, sum(ours) / 3, stats.sem(ours))
    assert (mean.low, mean.high) == pytest.approx((low, high), abs=1e-9)
    assert edge_of_stability(summary.along("optimizer.lr")["pre"], "optimizer.lr") == (0.1, 1.0)
    assert edge_of_stability(summary.along("optimizer.lr")["post"], "optimizer.lr") == (0.01, 0.1)


def test_the_report_says_what_was_learned(
    done: tuple[Experiment, list[PlannedRun], Path],
) -> None:
    *_, folder = done
    said = (folder / "report.md").read_text()
    assert (
        "post_lr0.01: +0.3997 (+0.3959 to +0.4035) against pre_lr0.01, more than the noise: worse"
        in said
    )
    assert "pre: the best optimizer.lr is 0.01; stable up to 0.1, diverging at 1." in said
    assert "3 diverged" in said
    for picture in re.findall(r"\((\w+\.png)\)", said):
        assert (folder / picture).read_bytes().startswith(b"\x89PNG")
    assert {"curves_step.png", "curves_tokens.png", "curves_seconds.png", "cost.png",
            "sweep_optimizer_lr.png"} <= {path.name for path in folder.iterdir()}  # fmt: skip


def test_the_results_are_a_table_that_pandas_reads(
    done: tuple[Experiment, list[PlannedRun], Path],
) -> None:
    _, runs, folder = done
    table = pandas.read_csv(folder / "results.csv")
    pandas.testing.assert_frame_equal(
        table, pandas.DataFrame(list_records(runs)), check_dtype=False
    )
    means = table.groupby(["arm", "optimizer.lr"])["loss"].mean()
    assert means["pre", 0.01] == pytest.approx(3.0 + sum(NOISE.values()) / 3)
    with (folder / "summary.csv").open() as file:
        rows = {row["cell"]: row for row in csv.DictReader(file)}
    assert float(rows["pre_lr0.01"]["loss"]) == pytest.approx(means["pre", 0.01])
    assert rows["post_lr1"]["diverged"] == "3"
    assert rows["post_lr1"]["loss"] == ""


def test_a_best_point_says_what_is_as_good(make: MakeExperiment, tmp_path: Path) -> None:
    """0.02 is better than 0.01 in two of three seeds, and than 0.1 in all."""
    experiment = make(sweep={"optimizer.lr": [0.01, 0.02, 0.1]}, seeds=3)
    runs = plan_runs(experiment, tmp_path)
    losses = {0.01: [3.1, 3.0, 3.2], 0.02: [3.0, 3.05, 3.1], 0.1: [4.0, 4.05, 4.1]}
    for run in runs:
        fake(run, losses[run.point["optimizer.lr"]][run.seed])
    best = next(line for line in list_verdicts(summarize(experiment, runs)) if "the best" in line)
    assert "the best optimizer.lr is 0.02 (than 0.01, not by more than the noise)" in best


@pytest.mark.parametrize(
    ("ours", "is_claimed"),
    [([100, 130, 95], False), ([150, 152, 148], True)],
    ids=["noise", "more"],
)
def test_a_speed_has_an_interval_and_differs_only_beyond_it(
    make: MakeExperiment, tmp_path: Path, ours: list[float], is_claimed: bool
) -> None:
    experiment = make(arms={"a": {}, "b": {"model.dropout": 0.1}}, seeds=3)
    runs, theirs = plan_runs(experiment, tmp_path), [101.0, 99.0, 103.0]
    for run in runs:
        fake(run, 3.0)
        result = read_result(run.folder)
        assert result is not None
        speed = (theirs if run.arm == "a" else ours)[run.seed]
        dataclasses.replace(result, tokens_per_second=speed).save(run.folder)
    write_report(summarize(experiment, runs), runs, tmp_path)
    (line,) = (x for x in (tmp_path / "report.md").read_text().splitlines() if "within noise" in x
               or "% (" in x)  # fmt: skip
    low, high = stats.t.interval(0.95, 2, np.mean(ours), stats.sem(ours))
    assert f"{np.mean(ours):,.0f} ± {(high - low) / 2:,.0f}" in line
    ratios = np.array(ours) / theirs - 1
    low, high = 100 * np.array(stats.t.interval(0.95, 2, ratios.mean(), stats.sem(ratios)))
    assert f"({low:+.0f} to {high:+.0f} %)" in line
    assert (f"| {100 * ratios.mean():+.0f} % (" in line) == is_claimed
    assert ("within noise" in line) != is_claimed


def test_one_seed_has_no_interval(make: MakeExperiment, tmp_path: Path) -> None:
    arms = {"a": {}, "b": {"model.dropout": 0.1}, "c": {"model.dropout": 0.2}}
    experiment = make(arms=arms)
    runs = plan_runs(experiment, tmp_path)
    for run, loss in zip(runs, [3.0, 3.5, None], strict=True):
        fake(run, loss)
    said = list(list_verdicts(summarize(experiment, runs)))
    assert said[0] == "There is one seed, so there are no intervals: differences may be noise."
    assert said[2] == "b: +0.5000 against a, from one seed, without an interval."
    assert said[3] == "c: 1 of 1 runs diverged, at step 12."


def test_other_vocabularies_are_compared_in_bits_per_byte(
    make: MakeExperiment, tmp_path: Path
) -> None:
    experiment = make(sweep={"model.vocab_size": [300, 400]})
    assert summarize(experiment, plan_runs(experiment, tmp_path)).metric == "bits_per_byte"


def test_the_page_works_in_a_browser_without_a_network(
    done: tuple[Experiment, list[PlannedRun], Path],
    browser: Any,
) -> None:
    *_, folder = done
    page = browser.new_page()
    requests: list[str] = []
    errors: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.on("console", lambda message: errors.append(message.text))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((folder / "report.html").as_uri())
    assert page.inner_text(".question") == "Which norm <placement> & rate?"
    assert page.locator("table").nth(0).locator("tbody tr").count() == 2
    by_step, by_clock = page.locator(".tab").nth(0), page.locator(".tab").nth(2)
    assert by_step.is_visible()
    assert not by_clock.is_visible()
    page.get_by_text("by wall-clock seconds", exact=True).click()
    assert by_clock.is_visible()
    assert not by_step.is_visible()
    assert "wall-clock seconds" in by_clock.locator("svg").text_content()
    box = by_clock.locator("svg").bounding_box()
    assert box["width"] > 300
    assert box["height"] > 100
    narrow = browser.new_page(viewport={"width": 400, "height": 800})
    narrow.goto((folder / "report.html").as_uri())
    assert narrow.evaluate("document.documentElement.scrollWidth") <= 400
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    assert errors == []
