"""The two places trafo writes to: messages on stderr, results on stdout.

All output for people goes through here, so that `trafo ... > file` holds results and
nothing else. rich is imported at the first output, which keeps `trafo --help` quick.
"""

from __future__ import annotations

import errno
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

# Unicode has a picture for each of the first 32 and for DEL (127); none for 128 to 159.
_PICTURES = {code: 0x2400 + code for code in range(32) if chr(code) not in "\t\n"}
_PICTURES |= {127: 0x2421} | dict.fromkeys(range(128, 160), 0xFFFD)


@cache
def messages() -> Console:
    """The console on stderr: progress, notes, warnings."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, highlight=False)


@cache
def results() -> Console:
    """The console on stdout: what the user asked for."""
    from rich.console import Console

    return Console(soft_wrap=True, highlight=False)


def say(text: str) -> None:
    """One message, word for word: brackets in a user's text are not markup.

    If it cannot be written, as when a log is on a full disk, nothing else fails with it.
    """
    try:
        messages().print(_printable(text, messages()), markup=False)
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise


def visible(text: str) -> str:
    """Control characters as pictures, except line ends and tabs: they could steer a terminal."""
    return text.translate(_PICTURES)


def show(*parts: RenderableType) -> None:
    """Results, one below the other: strings word for word, or rich tables and texts.

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


def _printable(text: str, console: Console) -> str:
    """A file's name may hold bytes that are not UTF-8, which Python keeps as lone surrogates."""
    text = text.encode("utf-8", errors="backslashreplace").decode()
    return visible(text) if console.is_terminal else text


def show_json(content: object) -> None:
    """Print a result as JSON."""
    import json

    show(json.dumps(content, indent=2, ensure_ascii=False))
