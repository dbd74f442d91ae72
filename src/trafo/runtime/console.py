"""The two places trafo writes to: messages on stderr, results on stdout.

All output for people goes through here, so that `trafo ... > file` holds results and nothing else.
Tables have one style: columns without lines, which also read well piped.

    table = plain_table("lr", ["script", "tokens"])
    table.add_row("Latin", "1,204")
    show(table)

rich is imported at the first output, which keeps `trafo --help` quick.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console, RenderableType
    from rich.table import Table
    from rich.text import Text

# Unicode has a picture for each of the first 32 and for DEL (127), none for 128 to 159.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
_PICTURES |= {127: 0x2421} | dict.fromkeys(range(128, 160), 0xFFFD)


@cache
def messages() -> Console:
    """Return the console on stderr, for progress, notes and warnings."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, highlight=False)


@cache
def results() -> Console:
    """Return the console on stdout, for what the user asked for."""
    from rich.console import Console

    return Console(soft_wrap=True, highlight=False)


def say(text: str) -> None:
    """Print one message, word for word: brackets in a user's text are not markup.

    If it cannot be written, as when a log is on a full disk, nothing else fails with it.
    """
    try:
        messages().print(_printable(text, messages()), markup=False)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise


def replace_controls(text: str) -> str:
    """Replace control characters, which could steer a terminal, except line ends and tabs."""
    return text.translate(_PICTURES)


def show(*parts: RenderableType) -> None:
    """Print results, one below the other: strings word for word, or rich tables and texts.

    In a file or pipe, lines of tables end where their words end, not where their column does.
    """
    console = results()
    for part in parts:
        if not isinstance(part, str) and not console.is_terminal:
            with console.capture() as capture:
                console.print(part, markup=False)
            part = "\n".join(line.rstrip() for line in capture.get().splitlines())
        if isinstance(part, str):
            part = _printable(part, console)
        console.print(part, markup=False)


def show_json(content: object) -> None:
    """Print a result as JSON."""
    import json

    show(json.dumps(content, indent=2, ensure_ascii=False))


def _printable(text: str, console: Console) -> str:
    # A file's name may hold bytes that are not UTF-8, which Python keeps as lone surrogates.
    text = text.encode("utf-8", errors="backslashreplace").decode()
    return replace_controls(text) if console.is_terminal else text


def plain_table(columns: str, head: Sequence[str] | None = None, padding: int = 3) -> Table:
    """Make an empty table, with `l` in `columns` for each flush left and `r` for each flush right.

    Where space is short, the last column wraps.
    """
    from rich.table import Table
    from rich.text import Text

    between = (0, padding, 0, 0)
    table = Table(box=None, show_header=head is not None, pad_edge=False, padding=between)
    for i, (side, title) in enumerate(zip(columns, head or [""] * len(columns), strict=True)):
        table.add_column(
            Text(title),
            justify="right" if side == "r" else "left",
            no_wrap=i < len(columns) - 1,
            header_style="bold",
        )
    return table


def dim(text: str) -> Text:
    """Style text of less importance."""
    from rich.text import Text

    return Text(text, style="dim")


def format_percent(part: float, whole: float) -> str:
    """Format a share as `12.3 %`, and a small one as `<0.1 %`, not zero."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f} %" if share >= 0.05 or not part else "<0.1 %"


def format_command(*words: str | Path) -> str:
    """Format a command line of trafo that can be copied into the shell as it is.

    The shell finds trafo by its name, or else as it was started this time.
    """
    import os
    import shlex
    import shutil

    started = sys.argv[0]
    program = f"{shlex.quote(sys.executable)} -m trafo"
    if shutil.which("trafo"):
        program = "trafo"
    elif os.path.basename(started) == "trafo" and os.path.exists(started):  # noqa: PTH110, PTH119
        program = shlex.quote(started)
    return f"{program} {shlex.join(map(str, words))}"
