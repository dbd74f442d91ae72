"""The report's parts -> report.md with PNGs, report.html in one file, results.csv, summary.csv."""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Template
from typing import Any

from trafo.experiments.pictures import Picture
from trafo.experiments.plan import PlannedRun
from trafo.experiments.report.content import Block, Choice, Grid, Heading, Sentences, contents
from trafo.experiments.summary import Summary, records
from trafo.runtime.atomic import atomic_write

REPORT, PAGE, RESULTS, SUMMARY = "report.md", "report.html", "results.csv", "summary.csv"
_TEMPLATE = Path(__file__).with_name("page.html")


def write_report(
    summary: Summary, runs: Sequence[PlannedRun], folder: Path, extra: Sequence[Block] = ()
) -> None:
    """Write all files into the experiment's folder; `extra` comes after the first sentences."""
    blocks = contents(summary)
    blocks[2:2] = extra
    experiment = summary.experiment
    for picture in _pictures(blocks):
        with atomic_write(folder / f"{picture.name}.png") as file:
            picture.figure.savefig(file, format="png", dpi=120)
    _write(folder / REPORT, markdown(experiment.name, experiment.question, blocks))
    _write(folder / PAGE, page(experiment.name, experiment.question, blocks))
    _write(folder / RESULTS, to_csv(records(runs)))
    _write(folder / SUMMARY, to_csv(list(_cells(summary))))


def markdown(title: str, question: str, blocks: Sequence[Block]) -> str:
    """For GitHub and editors; pictures lie beside it."""
    parts = [f"# {title}", *([question] if question else [])]
    for block in blocks:
        match block:
            case Heading(text):
                parts.append(f"## {text}")
            case Sentences(lines):
                parts.append("\n".join(f"- {line}" for line in lines))
            case Grid(head, rows):
                rule = ["---", *["---:"] * (len(head) - 1)]
                table = [head, rule, *rows]
                parts.append("\n".join(f"| {' | '.join(row)} |" for row in table))
            case Picture(name, caption):
                parts.append(f"![{caption}]({name}.png)")
            case Choice(pictures):
                parts.extend(f"![{p.caption}]({p.name}.png)" for p in pictures.values())
    return "\n\n".join(parts) + "\n"


def page(title: str, question: str, blocks: Sequence[Block]) -> str:
    """One HTML file that needs nothing else: styles, pictures and all are inside."""
    template = Template(_TEMPLATE.read_text(encoding="utf-8"))
    return template.substitute(
        title=html.escape(title),
        question=html.escape(question),
        body="\n".join(_html(block) for block in blocks),
    )


def _html(block: Block) -> str:
    match block:
        case Heading(text):
            return f"<h2>{html.escape(text)}</h2>"
        case Sentences(lines):
            items = "".join(f"<li>{html.escape(line)}</li>" for line in lines)
            return f"<ul>{items}</ul>"
        case Grid(head, rows):
            titles = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
            body = "".join(f"<tr>{_cells_of(row)}</tr>" for row in rows)
            table = f"<thead><tr>{titles}</tr></thead><tbody>{body}</tbody>"
            return f'<div class="wide"><table>{table}</table></div>'
        case Choice(pictures):
            return _tabs(pictures)
    return _figure(block)


def _cells_of(row: Sequence[str]) -> str:
    return "".join(f"<td>{html.escape(cell)}</td>" for cell in row)


def _figure(picture: Picture) -> str:
    caption = html.escape(picture.caption)
    return f"<figure>{_svg(picture)}<figcaption>{caption}</figcaption></figure>"


def _tabs(pictures: Mapping[str, Picture]) -> str:
    """Radio buttons that show one picture each: no script is needed."""
    parts = []
    for index, (label, picture) in enumerate(pictures.items()):
        name, checked = f"show-{picture.name}", " checked" if index == 0 else ""
        parts.append(f'<input type="radio" name="clock" id="{name}"{checked}>')
        parts.append(f'<label for="{name}">by {html.escape(label)}</label>')
        parts.append(f'<div class="tab">{_figure(picture)}</div>')
    return f'<div class="tabs">{"".join(parts)}</div>'


def _svg(picture: Picture) -> str:
    from matplotlib import rc_context

    file = io.StringIO()
    # Text stays text; ids of one picture must not meet those of another.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": picture.name}):
        picture.figure.savefig(file, format="svg", metadata={"Date": None}, transparent=True)
    svg = file.getvalue()
    label = html.escape(picture.caption, quote=True)
    return svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _pictures(blocks: Sequence[Block]) -> Iterator[Picture]:
    for block in blocks:
        if isinstance(block, Picture):
            yield block
        elif isinstance(block, Choice):
            yield from block.pictures.values()


def to_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line for each row; what is not known is empty."""
    file = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(file, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return file.getvalue()


def _cells(summary: Summary) -> Iterator[dict[str, Any]]:
    """One row for each arm and sweep point."""
    for cell in summary.cells:
        row: dict[str, Any] = {"cell": cell.name, "arm": cell.arm}
        row |= {key: cell.point.get(key) for key in summary.keys}
        row["parameters"] = cell.parameters
        for status in ("finished", "diverged", "stopped"):
            row[status] = len(cell.ended_at(status))
        named = {metric: cell.estimate(metric) for metric in ("loss", "bits_per_byte")}
        named["difference"] = summary.difference(cell)
        named |= {cost: cell.cost(cost) for cost in ("seconds", "tokens_per_second", "peak_memory")}
        named["speed_difference"] = summary.speed_difference(cell)
        for name, found in named.items():
            row[name] = None if found is None else found.mean
            row[f"{name}_low"] = None if found is None else found.low
            row[f"{name}_high"] = None if found is None else found.high
        yield row


def _write(path: Path, text: str) -> None:
    with atomic_write(path, "w") as file:
        file.write(text)
