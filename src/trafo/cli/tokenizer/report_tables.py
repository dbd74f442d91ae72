"""One `Report`, or two side by side -> tables for the terminal, at most 80 columns wide.

And a text with its tokens made visible: coloured on a terminal, separated by bars elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import cycle, groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from trafo.runtime.console import dim, percent, plain_table
from trafo.runtime.sizes import format_size
from trafo.tokenizer.report.facts import Report, Share, Token, Totals
from trafo.tokenizer.report.readable import readable, visible
from trafo.tokenizer.tokenizer import Tokenizer

_MOST_ROWS = 12
_NAME_WIDTH, _TOKEN_WIDTH, _EXAMPLES_WIDTH = 18, 20, 52
# Light, and neighbours well apart; black can be read on all of them.
_COLOURS = ("#a8dadc", "#ffd6a5", "#caffbf", "#ffadad", "#bdb2ff")


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
    table.add_row("encoded at", f"{format_size(report.bytes_per_second)}/s", dim("on one core"))
    return table


def _files(files: dict[str, Totals]) -> Table:
    head = ["file", "size", "tokens", "bytes/token", "tokens/word"]
    table = plain_table("lrrrr", head)
    for name, totals in list(files.items())[:_MOST_ROWS]:
        table.add_row(
            Text(_clipped_left(name, 30)),
            format_size(totals.num_bytes),
            f"{totals.num_tokens:,}",
            f"{totals.bytes_per_token:.2f}",
            f"{totals.tokens_per_word:.2f}",
        )
    _add_rest(table, len(files))
    return table


def _scripts(report: Report) -> Table:
    table = plain_table("lrrr", ["script", "of text", "of tokens", "bytes/token"])
    total = report.total
    for name, share in list(report.scripts.items())[:_MOST_ROWS]:
        table.add_row(
            name,
            percent(share.num_bytes, total.num_bytes),
            percent(share.num_tokens, total.num_tokens),
            f"{share.bytes_per_token:.2f}",
        )
    _add_rest(table, len(report.scripts))
    return table


def _two_lists(report: Report) -> Table:
    frequent = plain_table("lrr", ["most frequent", "count", "share"])
    for token in report.most_frequent:
        share = percent(token.count, report.total.num_tokens)
        frequent.add_row(_token_text(token), f"{token.count:,}", share)
    longest = plain_table("lrr", ["longest", "bytes", "count"])
    for token in report.longest:
        longest.add_row(_token_text(token), str(len(token.content)), f"{token.count:,}")
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
    shown = note + _examples(tokens, _EXAMPLES_WIDTH - len(note))
    table.add_row(name, f"{number:,}", Text(shown.rstrip(", ")))


def comparison_tables(one: Report, other: Report) -> list[RenderableType]:
    """Both tokenizers on the same text; the last column is the change from one to the other."""
    tables: list[RenderableType] = [_compared(one, other), ""]
    if len(one.files) > 1:
        tables += [_ratios("bytes per token, by file", one, other, one.files, other.files), ""]
    return [*tables, _ratios("bytes per token, by script", one, other, one.scripts, other.scripts)]


def _compared(one: Report, other: Report) -> Table:
    table = _comparison("", one, other)
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
    table = _comparison(title, one, other)
    # Only a special token of one of the two can be missing from the other.
    shared = [name for name in lefts if name in rights]
    for name in shared[:_MOST_ROWS]:
        left, right = lefts[name].bytes_per_token, rights[name].bytes_per_token
        shown = Text(_clipped_left(name, 26))
        table.add_row(shown, f"{left:.2f}", f"{right:.2f}", change(left, right))
    _add_rest(table, len(shared))
    return table


def _comparison(title: str, one: Report, other: Report) -> Table:
    names = [_clipped_left(report.tokenizer, _NAME_WIDTH) for report in (one, other)]
    table = plain_table("lrrr", [title, *names, "change"])
    for column, width in zip(table.columns, (26, 9, 9, 8), strict=True):
        column.min_width = width  # so that the tables line up
    return table


def change(left: float, right: float) -> str:
    """From the first to the second: `+4.0 %`."""
    return f"{100 * (right / left - 1):+.1f} %" if left else ""


def _add_rest(table: Table, num_rows: int) -> None:
    """Add a row with the number of rows left out."""
    if num_rows > _MOST_ROWS:
        table.add_row(dim(f"and {num_rows - _MOST_ROWS:,} more, see --json"))


def _token_text(token: Token) -> Text:
    """A token, cut if it is too long; never read as markup."""
    return Text(clipped(str(token), _TOKEN_WIDTH))


def _examples(tokens: Iterable[Token], width: int) -> str:
    """As many tokens as fit into a line."""
    line = ""
    for token in tokens:
        longer = f"{line}  {clipped(str(token), _TOKEN_WIDTH)}".lstrip()
        if Text(longer).cell_len > width - 2:
            return f"{line} …".lstrip()
        line = longer
    return line


def clipped(text: str, width: int) -> str:
    """At most `width` columns of the beginning."""
    shown = Text(text)
    shown.truncate(width, overflow="ellipsis")
    return shown.plain


def _clipped_left(text: str, width: int) -> str:
    """At most `width` characters of the end, where paths differ."""
    return text if len(text) <= width else f"…{text[1 - width :]}"


def coloured_tokens(tokenizer: Tokenizer, text: str) -> Text:
    """The text, each token on a background colour that differs from its neighbours'."""
    shown = Text()
    for token, colour in zip(_tokens(tokenizer, text), cycle(_COLOURS), strict=False):
        first, *further = token.split("\n")  # the colour must not run on to the end of the line
        shown.append(first, style=f"black on {colour}")
        for line in further:
            shown.append("\n").append(line, style=f"black on {colour}")
    return shown


def barred_tokens(tokenizer: Tokenizer, text: str) -> str:
    """The text with a bar between any two tokens."""
    return "|".join(_tokens(tokenizer, text))


def _tokens(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    for token_id in tokenizer.encode(text):
        yield _visible_token(tokenizer.vocab[token_id])


def _visible_token(token: bytes) -> str:
    """A token as text: incomplete characters in hexadecimal, line ends marked and kept."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return readable(token)
    return "".join(_visible_character(character) for character in text)


def _visible_character(character: str) -> str:
    if character == "\n":
        return "↵\n"
    return character if character == " " else visible(character)
