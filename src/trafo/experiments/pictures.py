"""The pictures of a report: learning curves with bands, sweeps, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trafo.experiments.plan import tokens_per_step
from trafo.experiments.statistics import estimate
from trafo.experiments.summary import METRICS, Cell, Summary, edge_of_stability
from trafo.training.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Numbers = NDArray[np.float64]

CLOCKS = {"step": "step", "tokens": "tokens", "seconds": "wall-clock seconds"}
_SIZE = (7.2, 4.2)
_MB = 1e6


@dataclass(frozen=True)
class Picture:
    """A figure with the name of its file and a caption."""

    name: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Curve:
    """The validations of the runs of a cell: one row for each seed."""

    at: dict[str, Numbers]
    """by clock, the mean over the seeds"""
    values: Numbers
    """(seed, validation)"""

    @property
    def band(self) -> tuple[Numbers, Numbers, Numbers]:
        """The mean over the seeds, and the ends of its interval; not drawn for a single seed."""
        found = [estimate(list(column)) for column in self.values.T]
        means = np.array([e.mean for e in found if e is not None])
        half = np.array([e.half_width or 0.0 for e in found if e is not None])
        return means, means - half, means + half


def curve_of(cell: Cell, metric: str) -> Curve | None:
    """Of the runs that finished or were stopped; else of those that diverged. None: no records."""
    whole = [run for run in cell.runs if _status(cell, run.seed) in ("finished", "stopped")]
    runs = whole or [run for run in cell.runs if _status(cell, run.seed) == "diverged"]
    rows = []
    for run in runs:
        records = [r for r in Run(run.folder).metrics if r["kind"] == "validation"]
        records = [r for r in records if np.isfinite(r.get(metric, np.nan))]
        per_step = tokens_per_step(run.config)
        rows.append([(r["step"], r["step"] * per_step, r["seconds"], r[metric]) for r in records])
    # Under a budget the steps differ: what all seeds have is the n-th validation.
    shortest = min(map(len, rows), default=0)
    if not shortest:
        return None
    table: Numbers = np.array([row[:shortest] for row in rows], dtype=np.float64)
    at = {clock: table[:, :, i].mean(axis=0) for i, clock in enumerate(CLOCKS)}
    return Curve(at, table[:, :, 3])


def draw_curves(summary: Summary, cells: Sequence[Cell], clock: str) -> Picture | None:
    """Learning curves of the held-out loss, the mean and its interval over the seeds."""
    figure, axes = new_figure()
    metric, drawn, begins, lowest = summary.metric, 0, [], []
    for color, cell in zip(some_colors(len(cells)), cells, strict=True):
        curve = curve_of(cell, metric)
        if curve is None:
            continue
        means, low, high = curve.band
        at, style = curve.at[clock], "--" if cell.has_diverged else "-"
        label = cell.name + (" (diverged)" if cell.has_diverged else "")
        axes.plot(at, means, style, color=color, label=label, marker="o", markersize=2.5)
        if len(curve.values) > 1:
            axes.fill_between(at, low, high, color=color, alpha=0.15, linewidth=0)
        begins.append(means[0])
        lowest.append(means.min())
        drawn += 1
    if not drawn:
        return None
    # One that explodes, or a band of few seeds, must not hide the others.
    top = min(axes.get_ylim()[1], 1.15 * float(np.median(begins)))
    axes.set_ylim(max(axes.get_ylim()[0], min(lowest) - 0.15 * (top - min(lowest))), top)
    axes.set_xlabel(CLOCKS[clock])
    axes.set_ylabel(f"held-out {METRICS[metric]}")
    axes.legend(frameon=False, fontsize=8, ncols=1 + (drawn > 6))
    caption = f"Learning curves by {CLOCKS[clock]}: mean and 95 % interval over the seeds."
    return Picture(f"curves_{clock}", caption, figure)


def draw_sweep(summary: Summary, key: str) -> Picture | None:
    """Final loss against a swept number, with the best point and where training diverges."""
    lines = summary.along(key)
    if not lines:
        return None
    figure, axes = new_figure()
    for color, (arm, cells) in zip(some_colors(len(lines)), lines.items(), strict=True):
        _draw_line(axes, summary, cells, key, arm, color)
    axes.set_xscale("log")
    axes.set_xlabel(key)
    axes.set_ylabel(f"final held-out {METRICS[summary.metric]}")
    axes.legend(frameon=False, fontsize=8)
    caption = f"Final loss against {key}: mean and 95 % interval; the best point is ringed."
    if any(cell.has_diverged for cells in lines.values() for cell in cells):
        caption += " Crosses: diverged. Dotted: the edge of stability."
    return Picture(f"sweep_{key.replace('.', '_')}", caption, figure)


def _draw_line(
    axes: Axes, summary: Summary, cells: Sequence[Cell], key: str, arm: str, color: Any
) -> None:
    metric = summary.metric
    found = [(float(cell.point[key]), cell.estimate(metric)) for cell in cells]
    points = [(x, e.mean, e.half_width or 0.0) for x, e in found if e is not None]
    if points:
        at, means, half = np.array(points).T
        axes.errorbar(at, means, half, color=color, label=arm, marker="o", capsize=3)
        best = summary.best(cells)
        value = best.estimate(metric)
        if value is not None:
            axes.plot(
                *([float(best.point[key])], [value.mean]),
                "o",
                markersize=13,
                markerfacecolor="none",
                markeredgecolor=color,
            )
    for cell in cells:
        if cell.has_diverged:
            axes.plot(
                [float(cell.point[key])], [0.96], "x", color=color, markersize=9,
                transform=axes.get_xaxis_transform(),
            )  # fmt: skip
    stable, diverged = edge_of_stability(cells, key)
    if stable is not None and diverged is not None:
        axes.axvline(float(np.sqrt(stable * diverged)), color=color, linestyle=":")


def draw_cost(summary: Summary, cells: Sequence[Cell]) -> Picture:
    """Loss, speed and memory side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 1.2 + 0.34 * len(cells)), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    places, colors = np.arange(len(cells)), some_colors(len(cells))
    found = [cell.estimate(summary.metric) for cell in cells]
    for place, color, value in zip(places, colors, found, strict=True):
        if value is not None:
            half = value.half_width or 0.0
            panels[0].errorbar(value.mean, place, xerr=half, color=color, marker="o", capsize=3)
    for panel, field, unit in (
        (panels[1], "tokens_per_second", 1),
        (panels[2], "peak_memory", _MB),
    ):
        costs = [cell.cost(field) for cell in cells]
        means = [0.0 if cost is None else cost.mean / unit for cost in costs]
        halves = [0.0 if cost is None else (cost.half_width or 0.0) / unit for cost in costs]
        panel.barh(places, means, xerr=halves, color=colors, height=0.6, capsize=3)
    titles = (f"held-out {METRICS[summary.metric]}", "tokens per second", "peak memory in MB")
    for axes, title in zip(panels, titles, strict=True):
        axes.set_xlabel(title)
        _plain(axes)
    panels[0].set_yticks(places, [cell.name for cell in cells])
    panels[0].invert_yaxis()
    return Picture("cost", "Loss, speed and memory, with 95 % intervals.", figure)


def _status(cell: Cell, seed: int) -> str | None:
    return cell.results[seed].status if seed in cell.results else None


def new_figure() -> tuple[Figure, Axes]:
    """Axes in the style of all pictures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE, layout="constrained")
    axes = figure.subplots()
    _plain(axes)
    return figure, axes


def _plain(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def some_colors(number: int, *, shaded: bool = False) -> list[Any]:
    """Colours of their own for a few, shades of one scale for many."""
    from matplotlib import colormaps

    if number <= 6 and not shaded:
        return [colormaps["tab10"](i) for i in range(number)]
    return [colormaps["viridis"](i / (number - 1) * 0.95) for i in range(number)]
