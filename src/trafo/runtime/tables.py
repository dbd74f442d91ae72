"""Tables for the terminal, all in one style: columns without lines, which also read well piped.

table = plain_table("lr", ["script", "tokens"])
table.add_row("Latin", "1,204")
show(table)                                          # trafo.runtime.console
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text


def plain_table(columns: str, head: Sequence[str] | None = None, padding: int = 3) -> Table:
    """An empty table. `columns` has a letter for each column: `l` flush left, `r` flush right.

    Where space is short, the last column wraps.
    """
    between = (0, padding, 0, 0)
    table = Table(box=None, show_header=head is not None, pad_edge=False, padding=between)
    last = len(columns) - 1
    for i, (place, title) in enumerate(zip(columns, head or [""] * len(columns), strict=True)):
        table.add_column(
            Text(title),
            justify="right" if place == "r" else "left",
            no_wrap=i < last,
            header_style="bold",
        )
    return table


def dim(text: str) -> Text:
    """Text of less importance."""
    return Text(text, style="dim")


def percent(part: float, whole: float) -> str:
    """`12.3 %`; a small share is `<0.1 %`, not zero."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f} %" if share >= 0.05 or not part else "<0.1 %"
