"""A text with its tokens made visible: coloured on a terminal, parted by bars elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

from rich.text import Text

from trafo.tokenizer.report.readable import readable, visible
from trafo.tokenizer.tokenizer import Tokenizer

# Light, and neighbours well apart; black can be read on all of them.
_COLOURS = ("#a8dadc", "#ffd6a5", "#caffbf", "#ffadad", "#bdb2ff")
_BAR = "|"


def coloured_tokens(tokenizer: Tokenizer, text: str) -> Text:
    """Each token on a background of its own."""
    shown = Text()
    for piece, colour in zip(_pieces(tokenizer, text), cycle(_COLOURS), strict=False):
        first, *further = piece.split("\n")  # the colour must not run on to the end of the line
        shown.append(first, style=f"black on {colour}")
        for line in further:
            shown.append("\n").append(line, style=f"black on {colour}")
    return shown


def barred_tokens(tokenizer: Tokenizer, text: str) -> str:
    """A bar between any two tokens."""
    return _BAR.join(_pieces(tokenizer, text))


def _pieces(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    for token_id in tokenizer.encode(text):
        yield _piece(tokenizer.vocab[token_id])


def _piece(token: bytes) -> str:
    """The text of a token, half characters in hexadecimal, ends of lines marked and kept."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return readable(token)
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character == "\n":
        return "↵\n"
    return character if character == " " else visible(character)
