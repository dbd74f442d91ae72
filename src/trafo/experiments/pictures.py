"""The pictures of a report: learning curves with bands, sweeps, and what it costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trafo.experiments.plan import tokens_per_step
from trafo.experiments.results import METRICS, Cell, Summary, edge_of_stability, estimate
from trafo.training.run import Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CLOCKS = {"step": "step", "tokens": "tokens", "seconds": "wall-clock seconds"}
_SIZE_INCHES = (7.2, 4.2)


@dataclass(frozen=True)
class Plot:
    """A figure with the name of its file and a caption."""

    name: str
    caption: str
    figure: Figure


def read_curves(cell: Cell, metric: str) -> NDArray[np.float64] | None:
    """Read the validations of a cell's runs: (seed, validation, clock or metric).

    Of the runs that finished or were stopped, else of those that diverged; None without records.
    """
    done = [run for run in cell.runs if run.seed in cell.results]
    runs = [run for run in done if cell.results[run.seed].status != "diverged"] or done
    rows = []
    for run in runs:
        records = [r for r in Run(run.folder).metrics if r["kind"] == "validation"]
        records = [r for r in records if np.isfinite(r.get(metric, np.nan))]
        per_step = tokens_per_step(run.config)
        rows.append([(r["step"], r["step"] * per_step, r["seconds"], r[metric]) for r in records])
    # Under a budget the steps differ: what all seeds have is the n-th validation.
    shortest = min(map(len, rows), default=0)
    return np.array([row[:shortest] for row in rows], dtype=np.float64) if shortest else None


def draw_curves(summary: Summary, cells: Sequence[Cell], clock: str) -> Plot | None:
    """Draw learning curves of the held-out loss, the mean and its interval over the seeds."""
    figure, axes = new_figure()
    metric, first, lowest = summary.metric, [], []
    for color, cell in zip(pick_colors(len(cells)), cells, strict=True):
        table = read_curves(cell, metric)
        if table is None:
            continue
        found = [e for e in map(estimate, table[:, :, 3].T.tolist()) if e is not None]
        means = np.array([e.mean for e in found])
        half = np.array([e.half_width or 0.0 for e in found])
        at = table[:, :, list(CLOCKS).index(clock)].mean(axis=0)
        style, end = ("--", " (diverged)") if cell.has_diverged else ("-", "")
        axes.plot(at, means, style, color=color, label=cell.name + end, marker="o", markersize=2.5)
        if len(table) > 1:
            axes.fill_between(at, means - half, means + half, color=color, alpha=0.15, linewidth=0)
        first.append(means[0])
        lowest.append(means.min())
    if not first:
        return None
    # One that explodes, or a band of few seeds, must not hide the others.
    top = min(axes.get_ylim()[1], 1.15 * float(np.median(first)))
    axes.set_ylim(max(axes.get_ylim()[0], min(lowest) - 0.15 * (top - min(lowest))), top)
    axes.set_xlabel(CLOCKS[clock])
    axes.set_ylabel(f"held-out {METRICS[metric]}")
    axes.legend(frameon=False, fontsize=8, ncols=1 + (len(first) > 6))
    caption = f"Learning curves by {CLOCKS[clock]}: mean and 95 % interval over the seeds."
    return Plot(f"curves_{clock}", caption, figure)


def draw_sweep(summary: Summary, key: str) -> Plot | None:
    """Draw the final loss against a swept number, the best point and where training diverges."""
    lines = summary.along(key)
    if not lines:
        return None
    figure, axes = new_figure()
    for color, (arm, cells) in zip(pick_colors(len(lines)), lines.items(), strict=True):
        _draw_sweep_of_arm(axes, summary, cells, key, arm, color)
    axes.set_xscale("log")
    axes.set_xlabel(key)
    axes.set_ylabel(f"final held-out {METRICS[summary.metric]}")
    axes.legend(frameon=False, fontsize=8)
    caption = f"Final loss against {key}: mean and 95 % interval; the best point is ringed."
    if any(cell.has_diverged for cells in lines.values() for cell in cells):
        caption += " Crosses: diverged. Dotted: the edge of stability."
    return Plot(f"sweep_{key.replace('.', '_')}", caption, figure)


def _draw_sweep_of_arm(
    axes: Axes, summary: Summary, cells: Sequence[Cell], key: str, arm: str, color: Any
) -> None:
    found = [(float(cell.point[key]), cell.estimate(summary.metric)) for cell in cells]
    points = [(x, e.mean, e.half_width or 0.0) for x, e in found if e is not None]
    if points:
        at, means, half = np.array(points).T
        axes.errorbar(at, means, half, color=color, label=arm, marker="o", capsize=3)
        x, best = found[cells.index(summary.best(cells))]
        assert best is not None
        ring = {"markerfacecolor": "none", "markeredgecolor": color}
        axes.plot([x], [best.mean], "o", markersize=13, **ring)
    diverged = [x for (x, _), cell in zip(found, cells, strict=True) if cell.has_diverged]
    top = axes.get_xaxis_transform()
    axes.plot(diverged, [0.96] * len(diverged), "x", color=color, markersize=9, transform=top)
    stable, unstable = edge_of_stability(cells, key)
    if stable is not None and unstable is not None:
        axes.axvline(float(np.sqrt(stable * unstable)), color=color, linestyle=":")


def draw_cost(summary: Summary, cells: Sequence[Cell]) -> Plot:
    """Draw loss, speed and memory side by side."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 1.2 + 0.34 * len(cells)), layout="constrained")
    panels = figure.subplots(1, 3, sharey=True)
    places, colors = np.arange(len(cells)), pick_colors(len(cells))
    for place, color, cell in zip(places, colors, cells, strict=True):
        if (value := cell.estimate(summary.metric)) is not None:
            half = value.half_width or 0.0
            panels[0].errorbar(value.mean, place, xerr=half, color=color, marker="o", capsize=3)
    for panel, field, unit in (
        (panels[1], "tokens_per_second", 1),
        (panels[2], "peak_memory", 1e6),
    ):
        costs = [cell.estimate(field) for cell in cells]
        means = [0.0 if cost is None else cost.mean / unit for cost in costs]
        halves = [0.0 if cost is None else (cost.half_width or 0.0) / unit for cost in costs]
        panel.barh(places, means, xerr=halves, color=colors, height=0.6, capsize=3)
    titles = (f"held-out {METRICS[summary.metric]}", "tokens per second", "peak memory in MB")
    for axes, title in zip(panels, titles, strict=True):
        axes.set_xlabel(title)
        _style(axes)
    panels[0].set_yticks(places, [cell.name for cell in cells])
    panels[0].invert_yaxis()
    return Plot("cost", "Loss, speed and memory, with 95 % intervals.", figure)


def new_figure() -> tuple[Figure, Axes]:
    """Make axes in the style of all pictures."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=_SIZE_INCHES, layout="constrained")
    axes = figure.subplots()
    _style(axes)
    return figure, axes


def _style(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def pick_colors(number: int, *, shaded: bool = False) -> list[Any]:
    """Pick distinct colours for a few, shades of one scale for many."""
    from matplotlib import colormaps

    if number <= 6 and not shaded:
        return [colormaps["tab10"](i) for i in range(number)]
    return [colormaps["viridis"](i / (number - 1) * 0.95) for i in range(number)]
