"""Results of runs -> what was learned: means over seeds, the best of each arm, differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from trafo.experiments.plan import (
    PlannedRun,
    Point,
    flops_per_step,
    num_parameters,
    tokens_per_step,
)
from trafo.experiments.result import Result, read_result
from trafo.experiments.spec import Experiment
from trafo.experiments.statistics import Estimate, estimate, paired_difference

METRICS = {"loss": "loss in nats per token", "bits_per_byte": "bits per byte"}


@dataclass(frozen=True)
class Cell:
    """The runs that differ in nothing but the seed, and their results."""

    runs: tuple[PlannedRun, ...]
    results: dict[int, Result]
    """by seed"""

    @property
    def name(self) -> str:
        """`adamw_lr0.003`."""
        return self.runs[0].cell

    @property
    def arm(self) -> str:
        """Its arm."""
        return self.runs[0].arm

    @property
    def point(self) -> Point:
        """The values of the swept settings."""
        return self.runs[0].point

    @cached_property
    def parameters(self) -> int:
        """Number of parameters of the model."""
        return num_parameters(self.runs[0].config)

    def values(self, metric: str) -> dict[int, float]:
        """By seed, of the runs that have finished."""
        finished = {s: r for s, r in self.results.items() if r.status == "finished"}
        found = {seed: getattr(result, metric) for seed, result in finished.items()}
        return {seed: value for seed, value in found.items() if value is not None}

    def estimate(self, metric: str) -> Estimate | None:
        """Mean and interval over the seeds."""
        return estimate(list(self.values(metric).values()))

    def cost(self, field: str) -> Estimate | None:
        """Mean and interval of a field of all results, those of diverged runs included."""
        return estimate(list(self.costs(field).values()))

    def costs(self, field: str) -> dict[int, float]:
        """A field of all results, by seed."""
        values = {seed: getattr(result, field) for seed, result in self.results.items()}
        return {seed: value for seed, value in values.items() if value is not None}

    def ended_at(self, status: str) -> list[int]:
        """The steps at which runs diverged, or were stopped."""
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

    @cached_property
    def contenders(self) -> list[Cell]:
        """What is compared: the best point of each arm; of a single arm, all points."""
        arms = list(dict.fromkeys(cell.arm for cell in self.cells))
        if len(arms) == 1:
            return list(self.cells)
        return [self.best([cell for cell in self.cells if cell.arm == arm]) for arm in arms]

    @cached_property
    def reference(self) -> Cell:
        """What the others are compared with: the first arm at its best point."""
        first = self.cells[0].arm
        return self.best([cell for cell in self.cells if cell.arm == first])

    def best(self, cells: Sequence[Cell]) -> Cell:
        """The lowest mean, among those that never diverged if there are any."""

        def rank(cell: Cell) -> tuple[bool, bool, float]:
            found = cell.estimate(self.metric)
            return found is None, cell.has_diverged, 0.0 if found is None else found.mean

        return min(cells, key=rank)

    def difference(self, cell: Cell) -> Estimate | None:
        """To the reference, paired by seed; None for the reference itself."""
        if cell is self.reference:
            return None
        return paired_difference(cell.values(self.metric), self.reference.values(self.metric))

    def speed_difference(self, cell: Cell) -> Estimate | None:
        """Tokens per second compared with the reference, paired by seed: 0.1 is 10 % faster."""
        ours, theirs = (each.costs("tokens_per_second") for each in (cell, self.reference))
        if cell is self.reference:
            return None
        return estimate([ours[seed] / theirs[seed] - 1 for seed in ours if theirs.get(seed)])

    @property
    def keys(self) -> list[str]:
        """The swept settings."""
        return list(dict.fromkeys(key for cell in self.cells for key in cell.point))

    def along(self, key: str) -> dict[str, list[Cell]]:
        """For each arm, its cells by the values of a swept number; other settings at their best."""
        lines: dict[str, list[Cell]] = {}
        for arm in dict.fromkeys(cell.arm for cell in self.cells):
            mine = [cell for cell in self.cells if cell.arm == arm and key in cell.point]
            mine = [cell for cell in mine if is_number(cell.point[key])]
            if len({cell.point[key] for cell in mine}) > 1:
                others = _others(self.best(mine), key)
                line = [cell for cell in mine if _others(cell, key) == others]
                lines[arm] = sorted(line, key=lambda cell: float(cell.point[key]))
        return lines


def summarize(experiment: Experiment, runs: Sequence[PlannedRun]) -> Summary:
    """The summary of the runs that are done."""
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
    """The largest value at which no seed diverged, and the smallest above it at which one did."""
    stable = [float(cell.point[key]) for cell in cells if not cell.has_diverged]
    largest = max(stable, default=None)
    above = [float(c.point[key]) for c in cells if c.has_diverged]
    above = [value for value in above if largest is None or value > largest]
    return largest, min(above, default=None)


def records(runs: Sequence[PlannedRun]) -> list[dict[str, Any]]:
    """One row for each run, as a table that pandas or polars reads."""
    keys = dict.fromkeys(key for run in runs for key in run.point)
    counts: dict[str, int] = {}
    return [_record(run, list(keys), counts) for run in runs]


def _record(run: PlannedRun, keys: list[str], counts: dict[str, int]) -> dict[str, Any]:
    result, config = read_result(run.folder), run.config
    if run.cell not in counts:
        counts[run.cell] = num_parameters(config)
    row: dict[str, Any] = {"run": run.name, "arm": run.arm}
    row |= {key: run.point.get(key) for key in keys}
    row |= {"seed": run.seed, "status": "not done" if result is None else result.status}
    step = result.step if result else None
    row |= {"step": step, "tokens": result.tokens if result else None}
    row["flops"] = step * flops_per_step(config) if step and not config.translates else None
    row["parameters"] = counts[run.cell]
    names = ["loss", "bits_per_byte", "perplexity", "seconds", "tokens_per_second", "peak_memory"]
    row |= {name: getattr(result, name) if result else None for name in names}
    row |= {"tokens_per_step": tokens_per_step(config), "folder": str(run.folder)}
    return row


def is_number(value: object) -> bool:
    """Whether it can be an axis."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _others(cell: Cell, key: str) -> Point:
    return {name: value for name, value in cell.point.items() if name != key}
