"""Results of runs: one run's `result.json`, means over seeds, and how arms compare.

The mean of n numbers with sample standard deviation s lies within t * s / sqrt(n) of the true mean
in 95 % of cases, where t is the 97.5 % quantile of Student's t with n - 1 degrees of freedom. With
three seeds t is 4.3, with one seed there is no interval.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean, median, stdev
from typing import Any, Literal

from trafo.errors import FormatError
from trafo.experiments.plan import (
    PlannedRun,
    Point,
    flops_per_step,
    num_parameters,
    tokens_per_step,
)
from trafo.experiments.spec import Experiment
from trafo.runtime.atomic import atomic_write, storage_errors
from trafo.runtime.json_text import parse_json
from trafo.training.metrics import Record

Status = Literal["finished", "diverged", "stopped"]
STATUSES: tuple[Status, ...] = ("finished", "diverged", "stopped")
METRICS = {"loss": "loss in nats per token", "bits_per_byte": "bits per byte"}
LEVEL = 0.95
"""share of the cases in which an interval holds the true mean"""
RESULT = "result.json"


@dataclass(frozen=True, kw_only=True)
class RunResult:
    """What was measured of a run. The run is done when its folder has this as result.json."""

    status: Status
    """finished; diverged: its loss was not finite, or rose far above the first one; stopped early
    by successive halving"""
    step: int
    """steps made; of a diverged run, the step at which it diverged"""
    tokens: int
    """tokens trained on"""
    loss: float | None = None
    """on held-out tokens, in nats per token; None if it diverged"""
    bits_per_byte: float | None = None
    perplexity: float | None = None
    seconds: float = 0.0
    """wall-clock time, validations and checkpoints included"""
    tokens_per_second: float | None = None
    """of the bare training step, the median over the run"""
    peak_memory: int | None = None
    """peak memory in bytes, without that of the program before the run; None if stopped early"""

    def save(self, folder: Path) -> None:
        """Write it into the folder of its run."""
        with atomic_write(folder / RESULT, "w") as file:
            json.dump(dataclasses.asdict(self), file, indent=1)


def read_result(folder: Path) -> RunResult | None:
    """Read the result of a run, None if it is not done."""
    path = folder / RESULT
    if not path.is_file():
        return None
    with storage_errors(path, "reading"):
        text = path.read_text(encoding="utf-8")
    try:
        return RunResult(**parse_json(text))
    except (TypeError, ValueError) as error:
        hint = "delete it, and the run is measured again"
        raise FormatError(f"is damaged: {error}", where=str(path), hint=hint) from None


def measure(metrics: list[Record]) -> dict[str, Any]:
    """Return the fields of a result that follow from the metrics of a run."""
    validation = {str(record.get("kind")): record for record in metrics}.get("validation", {})
    speeds = [r["tokens_per_second"] for r in metrics if r.get("tokens_per_second") is not None]
    found = {name: validation.get(name) for name in ("loss", "bits_per_byte", "perplexity")}
    return found | {
        "tokens_per_second": median(speeds[1:] or speeds) if speeds else None,  # the first is cold
        "seconds": max((record.get("seconds", 0.0) for record in metrics), default=0.0),
    }


@dataclass(frozen=True)
class Estimate:
    """A mean, with its confidence interval where there is one."""

    mean: float
    half_width: float | None
    """half the width of the interval; None for a single number"""
    count: int

    @property
    def low(self) -> float | None:
        """The lower end of the interval."""
        return None if self.half_width is None else self.mean - self.half_width

    @property
    def high(self) -> float | None:
        """The upper end of the interval."""
        return None if self.half_width is None else self.mean + self.half_width

    @property
    def excludes_zero(self) -> bool:
        """Whether it is more than the noise."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def estimate(values: Sequence[float]) -> Estimate | None:
    """Estimate the mean of the values, None if there are none."""
    from scipy.special import (
        stdtrit,
    )  # the quantiles of scipy.stats.t, without its second to import

    count = len(values)
    if count < 2:
        return Estimate(values[0], None, 1) if values else None
    quantile = float(stdtrit(count - 1, (1 + LEVEL) / 2))
    return Estimate(fmean(values), quantile * stdev(values) / math.sqrt(count), count)


def paired_difference(ours: Mapping[int, float], theirs: Mapping[int, float]) -> Estimate | None:
    """Estimate the mean of ours - theirs over the seeds that both have.

    Runs of one seed see the same batches: what they share cancels, so that the interval is
    narrower than those of the two means.
    """
    return estimate([ours[seed] - theirs[seed] for seed in ours if seed in theirs])


@dataclass(frozen=True)
class Cell:
    """The runs that differ in nothing but the seed, and their results."""

    runs: tuple[PlannedRun, ...]
    results: dict[int, RunResult]
    """by seed"""

    @property
    def name(self) -> str:
        """Its arm and point, such as `adamw_lr0.003`."""
        return self.runs[0].cell

    @property
    def arm(self) -> str:
        """Its arm."""
        return self.runs[0].arm

    @property
    def point(self) -> Point:
        """The values of the swept settings."""
        return self.runs[0].point

    @property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        return num_parameters(self.runs[0].config)

    def values(self, field: str) -> dict[int, float]:
        """Return a field of the results by seed: metrics of finished runs only, costs of all."""
        chosen = {
            seed: getattr(result, field)
            for seed, result in self.results.items()
            if field not in METRICS or result.status == "finished"
        }
        return {seed: value for seed, value in chosen.items() if value is not None}

    def estimate(self, field: str) -> Estimate | None:
        """Estimate the mean of a field over the seeds."""
        return estimate(list(self.values(field).values()))

    def ended_at(self, status: str) -> list[int]:
        """List the steps at which runs ended with this status."""
        return [result.step for result in self.results.values() if result.status == status]

    @property
    def has_diverged(self) -> bool:
        """Whether any of its runs has."""
        return bool(self.ended_at("diverged"))


@dataclass(frozen=True)
class Summary:
    """All cells, and how they compare."""

    experiment: Experiment
    cells: tuple[Cell, ...]
    metric: str
    """what is compared: the loss; bits per byte where the vocabularies differ"""

    @property
    def by_arm(self) -> dict[str, list[Cell]]:
        """The cells of each arm."""
        arms: dict[str, list[Cell]] = {}
        for cell in self.cells:
            arms.setdefault(cell.arm, []).append(cell)
        return arms

    @cached_property
    def contenders(self) -> list[Cell]:
        """What is compared: the best point of each arm, or all points of a single arm."""
        arms = list(self.by_arm.values())
        return arms[0] if len(arms) == 1 else [self.best(cells) for cells in arms]

    @cached_property
    def reference(self) -> Cell:
        """What the others are compared with: the first arm at its best point."""
        return self.best(self.by_arm[self.cells[0].arm])

    def best(self, cells: Sequence[Cell]) -> Cell:
        """Return the cell with the lowest mean, of those that never diverged if there are any."""

        def rank(cell: Cell) -> tuple[bool, bool, float]:
            found = cell.estimate(self.metric)
            return found is None, cell.has_diverged, 0.0 if found is None else found.mean

        return min(cells, key=rank)

    def difference(self, cell: Cell) -> Estimate | None:
        """Compare a cell with the reference, paired by seed; None for the reference itself."""
        if cell is self.reference:
            return None
        return paired_difference(cell.values(self.metric), self.reference.values(self.metric))

    def speed_difference(self, cell: Cell) -> Estimate | None:
        """Compare tokens per second with the reference, paired by seed: 0.1 is 10 % faster."""
        if cell is self.reference:
            return None
        ours, theirs = (each.values("tokens_per_second") for each in (cell, self.reference))
        return estimate([ours[seed] / theirs[seed] - 1 for seed in ours if theirs.get(seed)])

    @property
    def keys(self) -> list[str]:
        """The swept settings."""
        return list(dict.fromkeys(key for cell in self.cells for key in cell.point))

    def along(self, key: str) -> dict[str, list[Cell]]:
        """Order the cells of each arm by a swept number, its other settings at their best."""
        lines: dict[str, list[Cell]] = {}
        for arm, cells in self.by_arm.items():
            mine = [cell for cell in cells if _is_number(cell.point.get(key))]
            if len({cell.point[key] for cell in mine}) > 1:
                best = self.best(mine).point
                line = [cell for cell in mine if cell.point | {key: best[key]} == best]
                lines[arm] = sorted(line, key=lambda cell: float(cell.point[key]))
        return lines

    @property
    def rows(self) -> list[dict[str, Any]]:
        """One row for each cell: means and the ends of their intervals."""
        rows = []
        for cell in self.cells:
            row: dict[str, Any] = {"cell": cell.name, "arm": cell.arm}
            row |= {key: cell.point.get(key) for key in self.keys} | {"parameters": cell.parameters}
            row |= {status: len(cell.ended_at(status)) for status in STATUSES}
            estimates = {metric: cell.estimate(metric) for metric in METRICS}
            estimates["difference"] = self.difference(cell)
            for cost in ("seconds", "tokens_per_second", "peak_memory"):
                estimates[cost] = cell.estimate(cost)
            estimates["speed_difference"] = self.speed_difference(cell)
            for name, found in estimates.items():
                row[name] = found and found.mean
                row[f"{name}_low"], row[f"{name}_high"] = found and found.low, found and found.high
            rows.append(row)
        return rows


def summarize(experiment: Experiment, runs: Sequence[PlannedRun]) -> Summary:
    """Summarize the runs that are done."""
    by_cell: dict[str, list[PlannedRun]] = {}
    # In the order of the file; runs are in the order of seeds.
    for run in runs:
        by_cell.setdefault(run.cell, []).append(run)
    cells = []
    for mine in by_cell.values():
        results = {run.seed: read_result(run.folder) for run in mine}
        cells.append(Cell(tuple(mine), {s: r for s, r in results.items() if r is not None}))
    tokenizers = {
        (c.data, c.text, None if c.translates else c.language_model.vocab_size)
        for c in (run.config for run in runs)
    }
    return Summary(experiment, tuple(cells), "loss" if len(tokenizers) == 1 else "bits_per_byte")


def edge_of_stability(cells: Sequence[Cell], key: str) -> tuple[float | None, float | None]:
    """Return the largest value at which no seed diverged, and the first above at which one did."""
    stable = [float(cell.point[key]) for cell in cells if not cell.has_diverged]
    largest = max(stable, default=None)
    diverged = [float(cell.point[key]) for cell in cells if cell.has_diverged]
    return largest, min((x for x in diverged if largest is None or x > largest), default=None)


def list_records(runs: Sequence[PlannedRun]) -> list[dict[str, Any]]:
    """Return one row for each run, as a table that pandas or polars reads."""
    keys = dict.fromkeys(key for run in runs for key in run.point)
    rows = []
    for run in runs:
        config, result = run.config, read_result(run.folder)
        found = dict.fromkeys(RunResult.__dataclass_fields__) | {"status": "not done"}
        if result is not None:
            found = dataclasses.asdict(result)
        row: dict[str, Any] = {"run": run.name, "arm": run.arm}
        row |= {key: run.point.get(key) for key in keys} | {"seed": run.seed}
        row |= {name: found.pop(name) for name in ("status", "step", "tokens")}
        has_flops = row["step"] and not config.translates
        row["flops"] = row["step"] * flops_per_step(config) if has_flops else None
        row |= {"parameters": num_parameters(config)} | found
        row |= {"tokens_per_step": tokens_per_step(config), "folder": str(run.folder)}
        rows.append(row)
    return rows


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
