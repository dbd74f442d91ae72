"""`trafo tokenizer decode`: ids in, text out."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from trafo.cli.arguments import OptionalPlace, TokenizerPath
from trafo.cli.pipes import is_interactive, stdin_text, wait_for_stdin, write_text
from trafo.config import Argument, Positional
from trafo.errors import ConfigError, InputError

if TYPE_CHECKING:
    from trafo.tokenizer.tokenizer import Tokenizer

_IDS_PER_READ = 1 << 18


@dataclass(frozen=True, kw_only=True)
class Options:
    """Decode token ids from the command line, stdin or a token file.

    Invalid UTF-8, where ids begin or end inside a character, becomes U+FFFD.
    """

    tokenizer: TokenizerPath
    """a tokenizer in any format that trafo reads, or a run or model that has one"""
    ids: Annotated[Positional[tuple[str, ...]], Argument(metavar="ID ...")] = ()
    """the ids; without them, and without --tokens, they are read from stdin"""
    tokens: OptionalPlace = None
    """a token file that this tokenizer made"""

    def __post_init__(self) -> None:
        if self.ids and self.tokens is not None:
            raise ConfigError("both ids and --tokens are given", hint="give one of them")


def run(options: Options) -> None:
    """Load the tokenizer, then write the text as it is decoded."""
    from trafo.checkpoint.locate import load_tokenizer

    tokenizer = load_tokenizer(options.tokenizer)
    if options.tokens is not None:
        write_text(_decode_file(tokenizer, options.tokens))
    elif options.ids:  # all are checked before anything is written
        write_text([tokenizer.decode(list(map(parse_id, options.ids)))])
    else:
        if is_interactive():
            hint = "give them as arguments, pipe them in, or give --tokens"
            raise InputError("no ids given", hint=hint)
        wait_for_stdin("ids")
        write_text(tokenizer.decode_stream(map(parse_id, split_numbers(stdin_text()))))


def parse_id(word: str) -> int:
    """Parse a token id, a whole number that is not negative."""
    if not (word.isascii() and word.isdecimal()):
        raise InputError(f"{word!r} is not an id", hint="ids are whole numbers such as 0 or 50256")
    return int(word)


def split_numbers(texts: Iterable[str]) -> Iterator[str]:
    """Split consecutive texts at white space. A number may continue in the next text."""
    unfinished = ""
    for text in texts:
        *whole, unfinished = (unfinished + text + ".").split()
        unfinished = unfinished[:-1]
        yield from whole
    if unfinished:
        yield unfinished


def _decode_file(tokenizer: Tokenizer, path: str) -> Iterator[str]:
    """Decode a token file, some ids at a time."""
    from trafo.tokenizer.token_file import TokenFile

    ids = TokenFile.open(path, tokenizer.hash).ids
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    for start in range(0, len(ids), _IDS_PER_READ):
        yield decoder.decode(tokenizer.decode_bytes(ids[start : start + _IDS_PER_READ]))
    yield decoder.decode(b"", final=True)
