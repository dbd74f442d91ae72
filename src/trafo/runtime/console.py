"""The two places trafo writes to: messages on stderr, results on stdout.

All output for people goes through here, so that `trafo ... > file` holds results and
nothing else. rich is imported at the first output, which keeps `trafo --help` quick.
"""

from __future__ import annotations

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
    """One message, word for word: brackets in a user's text are not markup."""
    console = messages()
    text = _printable(text)
    console.print(visible(text) if console.is_terminal else text, markup=False)


def visible(text: str) -> str:
    """Control characters as pictures, except line ends and tabs: text must not steer a terminal."""
    return text.translate(_PICTURES)


def show(*parts: RenderableType) -> None:
    """Results, one below the other: strings word for word, or rich tables and texts.

    In a file or pipe, lines of tables end where their words end, not where their column does.
    """
    console = results()
    for part in parts:
        if isinstance(part, str) or console.is_terminal:
            if isinstance(part, str):
                part = visible(_printable(part)) if console.is_terminal else _printable(part)
            console.print(part, markup=False)
            continue
        with console.capture() as capture:
            console.print(part, markup=False)
        lines = _printable(capture.get()).splitlines()
        console.print("\n".join(line.rstrip() for line in lines), markup=False)


def _printable(text: str) -> str:
    """A file's name may hold bytes that are not UTF-8, which Python keeps as lone surrogates."""
    return text.encode("utf-8", errors="backslashreplace").decode()


def show_json(content: object) -> None:
    """Print a result as JSON."""
    import json

    show(json.dumps(content, indent=2, ensure_ascii=False))
