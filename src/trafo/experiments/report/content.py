"""A summary -> the parts of its report, in order: headings, sentences, tables, pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from trafo.experiments.pictures import (
    CLOCKS,
    Picture,
    draw_cost,
    draw_curves,
    draw_sweep,
)
from trafo.experiments.statistics import Estimate, paired_difference
from trafo.experiments.summary import METRICS, Cell, Summary, edge_of_stability
from trafo.runtime.sizes import format_duration, format_size

_METHOD = (
    "Intervals are 95 % intervals of the mean over seeds (Student's t). A difference is paired: "
    "runs of one seed see the same batches, and what they share cancels. Each interval stands on "
    "its own: of twenty, about one excludes zero by chance; and the best point of a sweep looks "
    "a little better than it is, because it was chosen."
)


@dataclass(frozen=True)
class Heading:
    """The title of a section."""

    text: str


@dataclass(frozen=True)
class Sentences:
    """A list of statements."""

    lines: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table; its first column is flush left."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Choice:
    """Pictures of the same thing, shown one at a time."""

    pictures: dict[str, Picture]


Block = Heading | Sentences | Grid | Picture | Choice


def contents(summary: Summary) -> list[Block]:
    """All parts of the report."""
    cells = summary.contenders
    blocks: list[Block] = [Heading("What was learned"), Sentences(tuple(verdicts(summary)))]
    blocks += [Heading("Results"), _results(summary, cells)]
    if len(cells) < len(summary.cells):
        blocks += [Heading("All points of the sweep"), _results(summary, summary.cells)]
    for key in summary.keys:
        if (picture := draw_sweep(summary, key)) is not None:
            blocks += [Heading(f"Sweep of {key}"), picture]
    curves = {clock: draw_curves(summary, cells, clock) for clock in CLOCKS}
    drawn = {CLOCKS[clock]: picture for clock, picture in curves.items() if picture is not None}
    if drawn:
        blocks += [Heading("Learning curves"), Choice(drawn)]
    head = ("", "steps", "tokens", "time", "tokens/s", "speed", "peak memory")
    costs = Grid(head, tuple(_cost(summary, cell) for cell in cells))
    blocks += [Heading("Cost"), draw_cost(summary, cells), costs]
    return [*blocks, Heading("Method"), Sentences((*_methods(summary), _METHOD))]


def verdicts(summary: Summary) -> Iterator[str]:
    """One sentence for each comparison."""
    reference, metric = summary.reference, METRICS[summary.metric]
    if len(summary.experiment.seeds) == 1:
        yield "There is one seed, so there are no intervals: differences may be noise."
    best = reference.estimate(summary.metric)
    value = "has no result" if best is None else f"reaches {format_estimate(best)} {metric}"
    yield f"{reference.name}, the reference, {value}."
    for cell in summary.contenders:
        if cell is not reference:
            yield f"{cell.name}: {_verdict(summary, cell)}."
    for key in summary.keys:
        for arm, cells in summary.along(key).items():
            yield f"{arm}: {_best_and_edge(summary, cells, key)}."


def _verdict(summary: Summary, cell: Cell) -> str:
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
    text = f"{_signed(difference)} against {summary.reference.name}"
    if difference.half_width is None:
        text += ", from one seed, without an interval"
    elif difference.excludes_zero:
        text += f", more than the noise: {'worse' if difference.mean > 0 else 'better'}"
    else:
        text += ", not more than the noise"
    return f"{ends}; the others: {text}" if ends else text


def _best_and_edge(summary: Summary, cells: Sequence[Cell], key: str) -> str:
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


def _results(summary: Summary, cells: Sequence[Cell]) -> Grid:
    head = ("", "parameters", "loss", "bits per byte", "difference", "more than noise", "runs")
    return Grid(head, tuple(_row(summary, cell) for cell in cells))


def _row(summary: Summary, cell: Cell) -> tuple[str, ...]:
    difference = summary.difference(cell)
    is_more = "" if difference is None or difference.half_width is None else "no"
    if difference is not None and difference.excludes_zero:
        is_more = "yes"
    if cell is summary.reference:
        is_more = "reference"
    return (
        cell.name,
        f"{cell.parameters:,}",
        format_estimate(cell.estimate("loss")),
        format_estimate(cell.estimate("bits_per_byte")),
        "" if difference is None else _signed(difference),
        is_more,
        _counts(cell),
    )


def _counts(cell: Cell) -> str:
    counts = {status: len(cell.ended_at(status)) for status in ("finished", "diverged", "stopped")}
    return ", ".join(f"{number} {status}" for status, number in counts.items() if number)


def _cost(summary: Summary, cell: Cell) -> tuple[str, ...]:
    def shown(field: str, as_text: Callable[[float], str]) -> str:
        found = cell.cost(field)
        if found is None:
            return "-"
        is_timed = field in ("seconds", "tokens_per_second") and found.half_width is not None
        return as_text(found.mean) + (f" ± {as_text(found.half_width or 0)}" if is_timed else "")

    return (
        cell.name,
        shown("step", "{:,.0f}".format),
        shown("tokens", "{:,.0f}".format),
        shown("seconds", format_duration),
        shown("tokens_per_second", "{:,.0f}".format),
        "reference" if cell is summary.reference else _speed(summary.speed_difference(cell)),
        shown("peak_memory", format_size),
    )


def _speed(found: Estimate | None) -> str:
    """`+12 % (+8 to +16)`; no number where the difference may be noise."""
    if found is None or found.low is None or found.high is None:
        return "-"
    ends = f"({100 * found.low:+.0f} to {100 * found.high:+.0f} %)"
    return f"{100 * found.mean:+.0f} % {ends}" if found.excludes_zero else f"within noise {ends}"


def _methods(summary: Summary) -> Iterator[str]:
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
    """`2.345 ± 0.012`."""
    if found is None:
        return "-"
    if found.half_width is None:
        return f"{found.mean:.4f}"
    return f"{found.mean:.4f} ± {found.half_width:.4f}"


def _signed(found: Estimate) -> str:
    """`+0.123 (0.100 to 0.146)`."""
    if found.half_width is None:
        return f"{found.mean:+.4f}"
    return f"{found.mean:+.4f} ({found.low:+.4f} to {found.high:+.4f})"
