"""`Report` -> tables for the terminal, at most 80 columns wide."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trafo.cli.tokenizer.cells import (
    MOST_ROWS,
    add_rest,
    clipped,
    clipped_left,
    examples,
    token_text,
)
from trafo.runtime.sizes import format_size
from trafo.runtime.tables import dim, percent, plain_table
from trafo.tokenizer.report.facts import Report, Token, Totals

_EXAMPLES_WIDTH = 52


def report_tables(report: Report) -> list[RenderableType]:
    """The whole report, table by table, with empty lines between them."""
    tables: list[RenderableType] = [_title(report), _summary(report)]
    if len(report.files) > 1:
        tables.append(_files(report.files))
    tables += [_scripts(report), _two_lists(report), _oddities(report)]
    return [line for table in tables for line in (table, "")][:-1]


def _title(report: Report) -> Text:
    about = (
        f": {report.num_tokens:,} tokens, {report.num_special_tokens} of them special, "
        f"pattern {clipped(report.pattern, 24)}, hash {report.hash[:12]}"
    )
    return Text.assemble((report.tokenizer, "bold"), (about, "dim"))


def _summary(report: Report) -> Table:
    total = report.total
    table = plain_table("lrl")
    num_files = len(report.files)
    of_text = "" if num_files == 1 else f"in {num_files:,} files"
    table.add_row("text", format_size(total.num_bytes), dim(of_text))
    table.add_row("words", f"{total.num_words:,}")
    table.add_row("tokens", f"{total.num_tokens:,}")
    table.add_row("bytes per token", f"{total.bytes_per_token:.2f}")
    table.add_row("characters per token", f"{total.characters_per_token:.2f}")
    table.add_row("tokens per word", f"{total.tokens_per_word:.2f}")
    table.add_row("encoded at", f"{report.bytes_per_second / 1e6:.0f} MB/s", dim("on one core"))
    return table


def _files(files: dict[str, Totals]) -> Table:
    head = ["file", "size", "tokens", "bytes/token", "tokens/word"]
    table = plain_table("lrrrr", head)
    for name, totals in list(files.items())[:MOST_ROWS]:
        table.add_row(
            Text(clipped_left(name, 30)),
            format_size(totals.num_bytes),
            f"{totals.num_tokens:,}",
            f"{totals.bytes_per_token:.2f}",
            f"{totals.tokens_per_word:.2f}",
        )
    add_rest(table, len(files))
    return table


def _scripts(report: Report) -> Table:
    table = plain_table("lrrr", ["script", "of text", "of tokens", "bytes/token"])
    total = report.total
    for name, share in list(report.scripts.items())[:MOST_ROWS]:
        table.add_row(
            name,
            percent(share.num_bytes, total.num_bytes),
            percent(share.num_tokens, total.num_tokens),
            f"{share.bytes_per_token:.2f}",
        )
    add_rest(table, len(report.scripts))
    return table


def _two_lists(report: Report) -> Table:
    frequent = plain_table("lrr", ["most frequent", "count", "share"])
    for token in report.most_frequent:
        share = percent(token.count, report.total.num_tokens)
        frequent.add_row(token_text(token), f"{token.count:,}", share)
    longest = plain_table("lrr", ["longest", "bytes", "count"])
    for token in report.longest:
        longest.add_row(token_text(token), str(len(token.content)), f"{token.count:,}")
    both = Table.grid(padding=(0, 4, 0, 0))
    both.add_row(frequent, longest)
    return both


def _oddities(report: Report) -> Table:
    table = plain_table("lrl", ["tokens", "number", "such as"])
    longer = [token for token in report.never_used if len(token.content) > 1]
    num_bytes = len(report.never_used) - len(longer)
    note = f"{num_bytes} single bytes, " if num_bytes else ""
    _add_oddity(table, "never used here", len(report.never_used), longer, note)
    for why, tokens in _by_reason(report.unreachable).items():
        _add_oddity(table, "unreachable", len(tokens), tokens, f"{why}: " if why else "")
    _add_oddity(table, "mojibake", len(report.mojibake), report.mojibake)
    _add_oddity(table, "boilerplate", len(report.boilerplate), report.boilerplate)
    return table


def _by_reason(tokens: Sequence[Token]) -> dict[str, list[Token]]:
    in_order = sorted(tokens, key=lambda token: token.why)
    groups = {why: list(group) for why, group in groupby(in_order, lambda token: token.why)}
    return groups or {"": []}


def _add_oddity(
    table: Table, name: str, number: int, tokens: Sequence[Token], note: str = ""
) -> None:
    shown = note + examples(tokens, _EXAMPLES_WIDTH - len(note))
    table.add_row(name, f"{number:,}", Text(shown.rstrip(", ")))
