"""Plain tables and the pieces of text that go into them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from trafo.tokenizer.report.facts import Token

MOST_ROWS = 12
TOKEN_WIDTH = 20


def plain_table(columns: str, head: Sequence[str] | None = None) -> Table:
    """A table without lines. `columns` has a letter for each: `l` flush left, `r` flush right.

    Where room is short, the last column goes on in the next line.
    """
    table = Table(box=None, show_header=head is not None, pad_edge=False, padding=(0, 3, 0, 0))
    last = len(columns) - 1
    for i, (place, title) in enumerate(zip(columns, head or [""] * len(columns), strict=True)):
        table.add_column(
            Text(title),
            justify="right" if place == "r" else "left",
            no_wrap=i < last,
            header_style="bold",
        )
    return table


def add_rest(table: Table, num_rows: int) -> None:
    """Say how many rows were left out."""
    if num_rows > MOST_ROWS:
        table.add_row(dim(f"and {num_rows - MOST_ROWS:,} more, see --json"))


def dim(text: str) -> Text:
    """What is said in passing."""
    return Text(text, style="dim")


def token_text(token: Token, width: int = TOKEN_WIDTH) -> Text:
    """A token, cut if it is too long, that cannot be taken for markup."""
    return Text(clipped(str(token), width))


def examples(tokens: Iterable[Token], width: int) -> str:
    """As many tokens as fit into a line."""
    line = ""
    for token in tokens:
        longer = f"{line}  {clipped(str(token), TOKEN_WIDTH)}".lstrip()
        if Text(longer).cell_len > width - 2:
            return f"{line} …".lstrip()
        line = longer
    return line


def percent(part: float, whole: float) -> str:
    """`12.3 %`; a trace is `<0.1 %`, not zero."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f} %" if share >= 0.05 or not part else "<0.1 %"


def clipped(text: str, width: int) -> str:
    """At most `width` columns of the beginning."""
    shown = Text(text)
    shown.truncate(width, overflow="ellipsis")
    return shown.plain


def clipped_left(text: str, width: int) -> str:
    """At most `width` characters of the end, where paths differ."""
    return text if len(text) <= width else f"…{text[1 - width :]}"
