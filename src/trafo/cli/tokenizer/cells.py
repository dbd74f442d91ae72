"""Tokens, paths and numbers, shortened to fit into the cells of a table."""

from __future__ import annotations

from collections.abc import Iterable

from rich.table import Table
from rich.text import Text

from trafo.runtime.tables import dim
from trafo.tokenizer.report.facts import Token

MOST_ROWS = 12
TOKEN_WIDTH = 20


def add_rest(table: Table, num_rows: int) -> None:
    """Add a row with the number of rows left out."""
    if num_rows > MOST_ROWS:
        table.add_row(dim(f"and {num_rows - MOST_ROWS:,} more, see --json"))


def token_text(token: Token, width: int = TOKEN_WIDTH) -> Text:
    """A token, cut if it is too long; never read as markup."""
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


def clipped(text: str, width: int) -> str:
    """At most `width` columns of the beginning."""
    shown = Text(text)
    shown.truncate(width, overflow="ellipsis")
    return shown.plain


def clipped_left(text: str, width: int) -> str:
    """At most `width` characters of the end, where paths differ."""
    return text if len(text) <= width else f"…{text[1 - width :]}"
