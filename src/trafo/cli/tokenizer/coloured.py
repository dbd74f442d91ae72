"""A text with its tokens made visible: coloured on a terminal, separated by bars elsewhere."""

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
    return _BAR.join(_tokens(tokenizer, text))


def _tokens(tokenizer: Tokenizer, text: str) -> Iterator[str]:
    for token_id in tokenizer.encode(text):
        yield _token_text(tokenizer.vocab[token_id])


def _token_text(token: bytes) -> str:
    """A token as text: incomplete characters in hexadecimal, line ends marked and kept."""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return readable(token)
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character == "\n":
        return "↵\n"
    return character if character == " " else visible(character)
