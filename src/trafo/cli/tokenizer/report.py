"""`trafo tokenizer report`: how a tokenizer encodes a text.

One report, or two side by side, as tables of at most 80 columns or as JSON, and a text with its
tokens made visible: coloured on a terminal, separated by bars elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import TYPE_CHECKING

from rich.text import Text

from trafo.cli.arguments import Errors, OptionalPlace, Texts, TokenizerPath
from trafo.errors import require_at_least
from trafo.runtime.console import dim, format_percent, plain_table, results, show, show_json
from trafo.runtime.sizes import format_size

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from trafo.tokenizer.report.measure import ListedToken, Report, ScriptCounts, TextCounts
    from trafo.tokenizer.tokenizer import Tokenizer

_MAX_ROWS = 12
_NAME_WIDTH, _TOKEN_WIDTH, _EXAMPLES_WIDTH = 18, 20, 52  # columns
# Light, and neighbours well apart. Black can be read on all of them.
_COLOURS = ("#a8dadc", "#ffd6a5", "#caffbf", "#ffadad", "#bdb2ff")


@dataclass(frozen=True, kw_only=True)
class Options:
    """Report on a tokenizer over a text: bytes per token, frequent, unused and odd tokens."""

    tokenizer: TokenizerPath
    """a tokenizer in any format that trafo reads, or a run or model that has one"""
    text: Texts
    """files, folders or globs; plain text, .gz, .zst, .jsonl, .parquet"""
    compare: OptionalPlace = None
    """second tokenizer, to compare side by side"""
    show: int = 0
    """show the tokens of the first N characters of the text, coloured"""
    top: int = 10
    """how many of the longest and of the most frequent tokens to list"""
    json: bool = False
    """print JSON instead of tables"""
    field: str = "text"
    """field that holds the text in JSON lines and Parquet"""
    errors: Errors = "strict"
    """invalid UTF-8: stop (strict), or read U+FFFD (replace)"""

    def __post_init__(self) -> None:
        require_at_least(0, **{"--show": self.show, "--top": self.top})


def run(options: Options) -> None:
    """Measure, then print."""
    from trafo.checkpoint.locate import load_tokenizer
    from trafo.tokenizer import open_inputs
    from trafo.tokenizer.report import measure_tokenizer

    paths = [path for path in (options.tokenizer, options.compare) if path is not None]
    tokenizers = [load_tokenizer(path) for path in paths]
    inputs = open_inputs(options.text, options.field, options.errors)
    reports = [
        measure_tokenizer(tokenizer, inputs, name=path, top=options.top)
        for tokenizer, path in zip(tokenizers, paths, strict=True)
    ]
    if options.json:
        content = [report.to_dict() for report in reports]
        show_json(content[0] if len(content) == 1 else content)
        return
    if options.show:
        in_colour = results().is_terminal and not results().no_color
        text = inputs.first_characters(options.show)
        for tokenizer in tokenizers:
            show(mark_tokens(tokenizer, text, in_colour), "")
    show(*make_report_tables(*reports))


def make_report_tables(report: Report, other: Report | None = None) -> list[RenderableType]:
    """Lay out a report, or two side by side, table by table with empty lines between them."""
    tables = _describe(report) if other is None else _compare(report, other)
    return [line for table in tables for line in (table, "")][:-1]


def _describe(report: Report) -> list[RenderableType]:
    total, num_files = report.total, len(report.files)
    about = (
        f": {report.num_tokens:,} tokens, {report.num_special_tokens} of them special, "
        f"pattern {clip(report.pattern, 24)}, hash {report.hash[:12]}"
    )
    summary = [
        ("text", format_size(total.num_bytes), dim(f"in {num_files:,} files" * (num_files > 1))),
        ("words", total.num_words),
        ("tokens", total.num_tokens),
        *_list_ratios(total).items(),
        ("encoded at", f"{format_size(report.bytes_per_second)}/s", dim("on one core")),
    ]
    files = [
        (
            _clip_left(name, 30),
            format_size(counts.num_bytes),
            counts.num_tokens,
            counts.bytes_per_token,
            counts.tokens_per_word,
        )
        for name, counts in report.files.items()
    ]
    scripts = [
        (
            name,
            format_percent(counts.num_bytes, total.num_bytes),
            format_percent(counts.num_tokens, total.num_tokens),
            counts.bytes_per_token,
        )
        for name, counts in report.scripts.items()
    ]
    file_head = ["file", "size", "tokens", "bytes/token", "tokens/word"]
    return [
        Text.assemble((report.tokenizer, "bold"), (about, "dim")),
        _make_table("lrl", None, summary),
        *([_make_table("lrrrr", file_head, files)] if num_files > 1 else []),
        _make_table("lrrr", ["script", "of text", "of tokens", "bytes/token"], scripts),
        _list_tokens(report),
        _list_odd_tokens(report),
    ]


def _list_ratios(counts: TextCounts) -> dict[str, float]:
    names = ("bytes_per_token", "characters_per_token", "tokens_per_word")
    return {name.replace("_", " "): getattr(counts, name) for name in names}


def _list_tokens(report: Report) -> Table:
    """Put the most frequent and the longest tokens side by side."""
    frequent = [
        (_clip_token(token), token.count, format_percent(token.count, report.total.num_tokens))
        for token in report.most_frequent
    ]
    longest = [(_clip_token(token), len(token.content), token.count) for token in report.longest]
    both = plain_table("ll", padding=4)
    both.add_row(
        _make_table("lrr", ["most frequent", "count", "share"], frequent, len(frequent)),
        _make_table("lrr", ["longest", "bytes", "count"], longest, len(longest)),
    )
    return both


def _list_odd_tokens(report: Report) -> Table:
    """Say how many tokens of each kind there are, and give examples."""
    longer = [token for token in report.never_used if len(token.content) > 1]
    num_bytes = len(report.never_used) - len(longer)
    note = f"{num_bytes} single bytes, " if num_bytes else ""
    examples = note + _join_examples(longer, _EXAMPLES_WIDTH - len(note))
    rows = [("never used here", len(report.never_used), examples.rstrip(", "))]
    for why in sorted({token.why for token in report.unreachable}) or [""]:
        tokens = [token for token in report.unreachable if token.why == why]
        note = f"{why}: " if why else ""
        examples = note + _join_examples(tokens, _EXAMPLES_WIDTH - len(note))
        rows.append(("unreachable", len(tokens), examples))
    for name, tokens in (("mojibake", report.mojibake), ("boilerplate", report.boilerplate)):
        rows.append((name, len(tokens), _join_examples(tokens, _EXAMPLES_WIDTH)))
    return _make_table("lrl", ["tokens", "number", "such as"], rows)


def _compare(one: Report, other: Report) -> list[RenderableType]:
    """Put two tokenizers on the same text side by side. The last column is the change."""
    pair = (one, other)
    rows = _compare_figures(
        *(
            {
                "tokens in the vocabulary": each.num_tokens,
                "tokens in this text": each.total.num_tokens,
            }
            | _list_ratios(each.total)
            | {"encoded at, in MB/s": round(each.bytes_per_second / 1e6)}
            for each in pair
        )
    )
    for name in ("never_used", "unreachable", "mojibake", "boilerplate"):
        numbers = (len(getattr(each, name)) for each in pair)
        rows.append((f"{name.replace('_', ' ')} tokens", *numbers))
    rows.append(("pattern", *(clip(each.pattern, _NAME_WIDTH) for each in pair)))
    tables = [("", rows)]
    for part in ("file", "script") if len(one.files) > 1 else ("script",):
        by_name: list[dict[str, ScriptCounts]] = [getattr(each, f"{part}s") for each in pair]
        ratios = ({name: c.bytes_per_token for name, c in counts.items()} for counts in by_name)
        tables.append((f"bytes per token, by {part}", _compare_figures(*ratios)))
    names = [_clip_left(each.tokenizer, _NAME_WIDTH) for each in pair]
    return [
        # Of fixed widths, so that the tables line up.
        _make_table("lrrr", [title, *names, "change"], rows, widths=(26, 9, 9, 8))
        for title, rows in tables
    ]


def _compare_figures(
    lefts: Mapping[str, float], rights: Mapping[str, float]
) -> list[tuple[object, ...]]:
    # Only a special token of one of the two can be missing from the other.
    shared = [(name, lefts[name], rights[name]) for name in lefts if name in rights]
    return [
        (_clip_left(name, 26), left, right, format_change(left, right))
        for name, left, right in shared
    ]


def format_change(left: float, right: float) -> str:
    """Format the change from the first to the second as `+4.0 %`."""
    return f"{100 * (right / left - 1):+.1f} %" if left else ""


def _make_table(
    columns: str,
    head: Sequence[str] | None,
    rows: Sequence[tuple[object, ...]],
    max_rows: int = _MAX_ROWS,
    widths: Sequence[int] = (),
) -> Table:
    """Fill a table with figures and texts."""
    table = plain_table(columns, head)
    for row in rows[:max_rows]:
        table.add_row(*map(_make_cell, row))
    if len(rows) > max_rows:
        table.add_row(dim(f"and {len(rows) - max_rows:,} more, see --json"))
    for column, width in zip(table.columns, widths, strict=False):
        column.min_width = width
    return table


def _make_cell(value: object) -> Text:
    """Format a count as `1,204`, a ratio as `3.45`, and a text word for word, not as markup."""
    if isinstance(value, Text):
        return value
    form = {int: ",", float: ".2f"}.get(type(value), "")
    return Text(format(value, form))


def _join_examples(tokens: Iterable[ListedToken], width: int) -> str:
    """Join as many tokens as fit into a line."""
    line = ""
    for token in tokens:
        longer = f"{line}  {_clip_token(token)}".lstrip()
        if Text(longer).cell_len > width - 2:
            return f"{line} …".lstrip()
        line = longer
    return line


def clip(text: str, width: int) -> str:
    """Keep at most `width` columns of the beginning."""
    shown = Text(text)
    shown.truncate(width, overflow="ellipsis")
    return shown.plain


def _clip_token(token: ListedToken) -> str:
    return clip(str(token), _TOKEN_WIDTH)


def _clip_left(text: str, width: int) -> str:
    """Keep at most `width` characters of the end, where paths differ."""
    return text if len(text) <= width else f"…{text[1 - width :]}"


def mark_tokens(tokenizer: Tokenizer, text: str, in_colour: bool) -> str | Text:
    """Colour each token unlike its neighbours, or without colours put bars between tokens."""
    tokens = [_format_token(tokenizer.vocab[i]) for i in tokenizer.encode(text)]
    if not in_colour:
        return "|".join(tokens)
    shown = Text()
    for token, colour in zip(tokens, cycle(_COLOURS), strict=False):
        first, *further = token.split("\n")  # the colour must not run on to the end of the line
        shown.append(first, style=f"black on {colour}")
        for line in further:
            shown.append("\n").append(line, style=f"black on {colour}")
    return shown


def _format_token(token: bytes) -> str:
    """Show a token inside its text: spaces stay, line ends are marked and kept."""
    from trafo.tokenizer.report.odd_tokens import format_token, make_visible

    try:
        text = token.decode()
    except UnicodeDecodeError:
        return format_token(token)
    kept = {" ": " ", "\n": "↵\n"}
    return "".join(kept.get(character) or make_visible(character) for character in text)
