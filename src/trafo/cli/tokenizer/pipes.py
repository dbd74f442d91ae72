"""Text and numbers through stdin and stdout, piece by piece, always UTF-8."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterable, Iterator
from typing import Literal

from trafo.errors import InputError

_PIECE = 1 << 16  # bytes


def stdin_text(errors: Literal["strict", "replace"] = "strict") -> Iterator[str]:
    """What is piped in, line ends as they are."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors)
    offset = 0
    while True:
        data = sys.stdin.buffer.read(_PIECE)
        pending = len(decoder.getstate()[0])
        try:
            yield decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            place = offset - pending + error.start
            raise InputError(
                f"not UTF-8: byte 0x{error.object[error.start]:02x} at offset {place:,}",
                where="stdin",
                hint="mend the text, or use `--errors replace` to read U+FFFD instead",
            ) from None
        offset += len(data)
        if not data:
            return


def is_interactive() -> bool:
    """Whether stdin is a person, who was not asked for anything."""
    return sys.stdin is None or sys.stdin.isatty()


def write_text(pieces: Iterable[str]) -> None:
    """Write pieces as they come; on a terminal the prompt gets a line of its own."""
    out = sys.stdout.buffer
    for piece in pieces:
        out.write(piece.encode())
    if sys.stdout.isatty():
        out.write(b"\n")
    out.flush()
