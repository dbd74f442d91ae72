"""Text from stdin and to stdout, as a stream, always UTF-8."""

from __future__ import annotations

import codecs
import select
import sys
from collections.abc import Iterable, Iterator
from typing import Literal

from trafo.errors import InputError
from trafo.runtime.console import say

_READ_SIZE = 1 << 16  # bytes
_SECONDS_TO_WAIT = 2.0


def stdin_text(errors: Literal["strict", "replace"] = "strict") -> Iterator[str]:
    """The text on stdin, with its line ends unchanged."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    offset = 0
    while True:
        data = sys.stdin.buffer.read(_READ_SIZE)
        pending = len(decoder.getstate()[0])
        try:
            yield decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            place = offset - pending + error.start
            raise InputError(
                f"not UTF-8: byte 0x{error.object[error.start]:02x} at offset {place:,}",
                where="stdin",
                hint="fix the text, or use `--errors replace` to read U+FFFD instead",
            ) from None
        offset += len(data)
        if not data:
            return


def is_interactive() -> bool:
    """Whether nothing is piped in: waiting for stdin would look like hanging."""
    return sys.stdin is None or sys.stdin.isatty()


def wait_for_stdin(what: str) -> None:
    """Return when there is something to read; if that takes long, say what is waited for."""
    try:
        ready, _, _ = select.select([sys.stdin], [], [], _SECONDS_TO_WAIT)
    except (OSError, ValueError):  # not a real file, as in tests: then it does not wait
        return
    if not ready:
        end = "; Ctrl-D ends it" if sys.stdin.isatty() else ""
        say(f"waiting for {what} on standard input{end}")


def write_text(texts: Iterable[str]) -> None:
    """Write texts as they come; on a terminal, end with a new line for the prompt."""
    out = sys.stdout.buffer
    for text in texts:
        out.write(text.encode())
    if sys.stdout.isatty():
        out.write(b"\n")
    out.flush()
