"""Two `Report`s on the same text, side by side."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trafo.cli.tokenizer.cells import MOST_ROWS, add_rest, clipped, clipped_left
from trafo.runtime.tables import plain_table
from trafo.tokenizer.report.facts import Report, Share, Totals

_NAME_WIDTH = 18


def comparison_tables(one: Report, other: Report) -> list[RenderableType]:
    """Both tokenizers on the same text; the last column is the change from one to the other."""
    tables: list[RenderableType] = [_facts(one, other), ""]
    if len(one.files) > 1:
        tables += [_ratios("bytes per token, by file", one, other, one.files, other.files), ""]
    return [*tables, _ratios("bytes per token, by script", one, other, one.scripts, other.scripts)]


def _facts(one: Report, other: Report) -> Table:
    table = _table("", one, other)
    a, b = one.total, other.total
    rows: list[tuple[str, float, float, str]] = [
        ("tokens in the vocabulary", one.num_tokens, other.num_tokens, ",.0f"),
        ("tokens in this text", a.num_tokens, b.num_tokens, ",.0f"),
        ("bytes per token", a.bytes_per_token, b.bytes_per_token, ".2f"),
        ("characters per token", a.characters_per_token, b.characters_per_token, ".2f"),
        ("tokens per word", a.tokens_per_word, b.tokens_per_word, ".2f"),
        ("encoded at, in MB/s", one.bytes_per_second / 1e6, other.bytes_per_second / 1e6, ".0f"),
    ]
    for name, left, right, form in rows:
        table.add_row(name, format(left, form), format(right, form), change(left, right))
    for name in ("never_used", "unreachable", "mojibake", "boilerplate"):
        counts = [f"{len(getattr(report, name)):,}" for report in (one, other)]
        table.add_row(f"{name.replace('_', ' ')} tokens", *counts)
    table.add_row("pattern", *(Text(clipped(r.pattern, _NAME_WIDTH)) for r in (one, other)))
    return table


def _ratios(
    title: str,
    one: Report,
    other: Report,
    lefts: Mapping[str, Totals] | Mapping[str, Share],
    rights: Mapping[str, Totals] | Mapping[str, Share],
) -> Table:
    table = _table(title, one, other)
    # Only a special token of one of the two can be missing from the other.
    shared = [name for name in lefts if name in rights]
    for name in shared[:MOST_ROWS]:
        left, right = lefts[name].bytes_per_token, rights[name].bytes_per_token
        shown = Text(clipped_left(name, 26))
        table.add_row(shown, f"{left:.2f}", f"{right:.2f}", change(left, right))
    add_rest(table, len(shared))
    return table


def _table(title: str, one: Report, other: Report) -> Table:
    names = [clipped_left(report.tokenizer, _NAME_WIDTH) for report in (one, other)]
    table = plain_table("lrrr", [title, *names, "change"])
    for column, width in zip(table.columns, (26, 9, 9, 8), strict=True):
        column.min_width = width  # so that the tables line up
    return table


def change(left: float, right: float) -> str:
    """From the first to the second: `+4.0 %`."""
    return f"{100 * (right / left - 1):+.1f} %" if left else ""
