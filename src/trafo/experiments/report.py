"""A summary -> report.md with PNGs, report.html in one file, results.csv and summary.csv."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trafo.experiments.pictures import CLOCKS, Plot, draw_cost, draw_curves, draw_sweep
from trafo.experiments.plan import PlannedRun
from trafo.experiments.results import (
    METRICS,
    STATUSES,
    Cell,
    Estimate,
    Summary,
    edge_of_stability,
    list_records,
    paired_difference,
)
from trafo.runtime.atomic import atomic_write
from trafo.runtime.sizes import format_duration, format_size

REPORT, PAGE, RESULTS, SUMMARY = "report.md", "report.html", "results.csv", "summary.csv"
_METHOD = (
    "Intervals are 95 % intervals of the mean over seeds (Student's t). A difference is paired: "
    "runs of one seed see the same batches, and what they share cancels. Each interval stands on "
    "its own: of twenty, about one excludes zero by chance; and the best point of a sweep looks "
    "a little better than it is, because it was chosen."
)


@dataclass(frozen=True)
class Section:
    """A part of the report: statements, pictures and a table below a title."""

    title: str
    lines: Sequence[str] = ()
    plots: Mapping[str, Plot] = field(default_factory=dict)
    """by label; several of them are shown one at a time"""
    table: Sequence[Sequence[str]] = ()
    """the first row is the head, the first column is flush left"""


def write_report(
    summary: Summary, runs: Sequence[PlannedRun], folder: Path, extra: Sequence[Section] = ()
) -> None:
    """Write all files into the experiment's folder, with `extra` after the first section."""
    first, *others = list_sections(summary)
    sections = [first, *extra, *others]
    for plot in (plot for section in sections for plot in section.plots.values()):
        with atomic_write(folder / f"{plot.name}.png") as file:
            plot.figure.savefig(file, format="png", dpi=120)
    title, question = summary.experiment.name, summary.experiment.question
    for name, text in {
        REPORT: to_markdown(title, question, sections),
        PAGE: to_html(title, question, sections),
        RESULTS: to_csv(list_records(runs)),
        SUMMARY: to_csv(summary.rows),
    }.items():
        with atomic_write(folder / name, "w") as file:
            file.write(text)


def to_markdown(title: str, question: str, sections: Sequence[Section]) -> str:
    """Write the report for GitHub and editors, with links to the pictures beside it."""
    parts = [f"# {title}", *([question] if question else [])]
    for section in sections:
        parts.append(f"## {section.title}")
        if section.lines:
            parts.append("\n".join(f"- {line}" for line in section.lines))
        parts.extend(f"![{plot.caption}]({plot.name}.png)" for plot in section.plots.values())
        if section.table:
            head, *rows = section.table
            rule = ["---", *["---:"] * (len(head) - 1)]
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in [head, rule, *rows]))
    return "\n\n".join(parts) + "\n"


def to_html(title: str, question: str, sections: Sequence[Section]) -> str:
    """Write one HTML file that needs nothing else: styles and pictures are inside."""
    from jinja2 import Environment

    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    template = Path(__file__).with_name("report.html").read_text(encoding="utf-8")
    return environment.from_string(template).render(
        title=title, question=question, sections=sections, svg=_to_svg
    )


def _to_svg(plot: Plot) -> str:
    from matplotlib import rc_context

    file = io.StringIO()
    # Text stays text; ids of one picture must not meet those of another.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": plot.name}):
        plot.figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    svg = file.getvalue()
    return svg[svg.index("<svg") + len("<svg") :]


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """Write one line for each row, empty where a value is not known."""
    file = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def list_sections(summary: Summary) -> Iterator[Section]:
    """List all parts of the report."""
    cells = summary.contenders
    yield Section("What was learned", list(list_verdicts(summary)))
    yield Section("Results", table=_tabulate_results(summary, cells))
    if len(cells) < len(summary.cells):
        table = _tabulate_results(summary, summary.cells)
        yield Section("All points of the sweep", table=table)
    for key in summary.keys:
        if (plot := draw_sweep(summary, key)) is not None:
            yield Section(f"Sweep of {key}", plots={key: plot})
    curves = {CLOCKS[clock]: draw_curves(summary, cells, clock) for clock in CLOCKS}
    drawn = {label: plot for label, plot in curves.items() if plot is not None}
    if drawn:
        yield Section("Learning curves", plots=drawn)
    head = ["", "steps", "tokens", "time", "tokens/s", "speed", "peak memory"]
    costs = [head, *(_cost_row(summary, cell) for cell in cells)]
    yield Section("Cost", plots={"cost": draw_cost(summary, cells)}, table=costs)
    yield Section("Method", [*_describe_method(summary), _METHOD])


def list_verdicts(summary: Summary) -> Iterator[str]:
    """State each comparison in a sentence."""
    reference, metric = summary.reference, METRICS[summary.metric]
    if len(summary.experiment.seeds) == 1:
        yield "There is one seed, so there are no intervals: differences may be noise."
    best = reference.estimate(summary.metric)
    value = "has no result" if best is None else f"reaches {format_estimate(best)} {metric}"
    yield f"{reference.name}, the reference, {value}."
    for cell in summary.contenders:
        if cell is not reference:
            yield f"{cell.name}: {_describe_cell(summary, cell)}."
    for key in summary.keys:
        for arm, cells in summary.along(key).items():
            yield f"{arm}: {_describe_sweep(summary, cells, key)}."


def _describe_cell(summary: Summary, cell: Cell) -> str:
    diverged, stopped = cell.ended_at("diverged"), cell.ended_at("stopped")
    if stopped:
        return f"stopped early at step {stopped[0]:,} by successive halving"
    ends = ""
    if diverged:
        steps = ", ".join(f"{step:,}" for step in sorted(diverged))
        ends = f"{len(diverged)} of {len(cell.runs)} runs diverged, at step {steps}"
    difference = summary.difference(cell)
    if difference is None:
        return ends or "nothing to compare"
    text = f"{_format_difference(difference)} against {summary.reference.name}"
    if difference.half_width is None:
        text += ", from one seed, without an interval"
    elif difference.excludes_zero:
        text += f", more than the noise: {'worse' if difference.mean > 0 else 'better'}"
    else:
        text += ", not more than the noise"
    return f"{ends}; the others: {text}" if ends else text


def _describe_sweep(summary: Summary, cells: Sequence[Cell], key: str) -> str:
    best = summary.best(cells)
    text = f"the best {key} is {best.point[key]:g}"
    ours = best.values(summary.metric)
    # Of one seed there is no interval, and the report says so once.
    behind = {c.point[key]: paired_difference(c.values(summary.metric), ours) for c in cells}
    as_good = [f"{at:g}" for at, d in behind.items() if d and d.half_width and not d.excludes_zero]
    if as_good:
        text += f" (than {', '.join(as_good)}, not by more than the noise)"
    if best is cells[-1] or best is cells[0]:
        text += ", at the end of the range: widen it"
    stable, diverged = edge_of_stability(cells, key)
    if diverged is None:
        return f"{text}; nothing diverged"
    below = "" if stable is None else f"stable up to {stable:g}, "
    return f"{text}; {below}diverging at {diverged:g}"


def _tabulate_results(summary: Summary, cells: Sequence[Cell]) -> list[list[str]]:
    head = ["", "parameters", "loss", "bits per byte", "difference", "more than noise", "runs"]
    return [head, *(_result_row(summary, cell) for cell in cells)]


def _result_row(summary: Summary, cell: Cell) -> list[str]:
    difference = summary.difference(cell)
    is_more = "reference" if cell is summary.reference else ""
    if difference is not None and difference.half_width is not None:
        is_more = "yes" if difference.excludes_zero else "no"
    counts = {status: len(cell.ended_at(status)) for status in STATUSES}
    return [
        cell.name,
        f"{cell.parameters:,}",
        format_estimate(cell.estimate("loss")),
        format_estimate(cell.estimate("bits_per_byte")),
        "" if difference is None else _format_difference(difference),
        is_more,
        ", ".join(f"{number} {status}" for status, number in counts.items() if number),
    ]


def _cost_row(summary: Summary, cell: Cell) -> list[str]:
    def format_mean(name: str, as_text: Callable[[float], str] = "{:,.0f}".format) -> str:
        found = cell.estimate(name)
        if found is None:
            return "-"
        is_timed = name in ("seconds", "tokens_per_second") and found.half_width is not None
        return as_text(found.mean) + (f" ± {as_text(found.half_width or 0)}" if is_timed else "")

    is_reference = cell is summary.reference
    return [
        cell.name,
        format_mean("step"),
        format_mean("tokens"),
        format_mean("seconds", format_duration),
        format_mean("tokens_per_second"),
        "reference" if is_reference else _format_speed(summary.speed_difference(cell)),
        format_mean("peak_memory", format_size),
    ]


def _format_speed(found: Estimate | None) -> str:
    """Format a speed-up: `+12 % (+8 to +16)`, without the mean where it may be noise."""
    if found is None or found.low is None or found.high is None:
        return "-"
    ends = f"({100 * found.low:+.0f} to {100 * found.high:+.0f} %)"
    return f"{100 * found.mean:+.0f} % {ends}" if found.excludes_zero else f"within noise {ends}"


def _describe_method(summary: Summary) -> Iterator[str]:
    experiment = summary.experiment
    seeds = ", ".join(map(str, experiment.seeds))
    yield f"Seeds {seeds}; held equal: {experiment.equal}; compared: {METRICS[summary.metric]}."
    runs = [run for cell in summary.cells for run in cell.runs]
    tokens = sorted({run.config.watch.evaluate_tokens or 0 for run in runs})
    yield f"Every run is measured on the same {tokens[0]:,} held-out tokens."
    yield (
        "A run counts as diverged when its loss is not finite, or the mean of three logged losses "
        "is more than 1 nat above the first one; it is stopped there."
    )
    yield (
        "The speed of a run is the median over its records. Runs that share a machine disturb each "
        "other: a speed is called different only where the interval over seeds excludes zero."
    )
    if experiment.equal == "wall-clock":
        yield "Wall-clock is held equal, so the steps follow the clock, and what else runs matters."
    if experiment.halving is not None:
        shares = ", ".join(f"{share:.0%}" for share in experiment.halving.at)
        keep = experiment.halving.keep
        yield f"Successive halving: at {shares} of the steps the best {keep:.0%} continued."


def format_estimate(found: Estimate | None) -> str:
    """Format a mean with its interval: `2.345 ± 0.012`."""
    if found is None:
        return "-"
    if found.half_width is None:
        return f"{found.mean:.4f}"
    return f"{found.mean:.4f} ± {found.half_width:.4f}"


def _format_difference(found: Estimate) -> str:
    """Format a difference: `+0.123 (0.100 to 0.146)`."""
    if found.half_width is None:
        return f"{found.mean:+.4f}"
    return f"{found.mean:+.4f} ({found.low:+.4f} to {found.high:+.4f})"
