"""A text file -> its lines, for formats in which a line is a sentence.

`.gz` and `.zst` are decompressed. A line ends at a line feed, with or without a carriage return
before it; nothing else ends one, so that files stay aligned whatever characters they hold.
"""

from __future__ import annotations

from pathlib import Path

from trafo.errors import InputError
from trafo.tokenizer.reading.files import read_file
from trafo.tokenizer.reading.records import Errors

_READ_SIZE = 1 << 20


def read_lines(path: str | Path, errors: Errors = "strict") -> list[str]:
    """All lines without their ends; at least one."""
    path = Path(path)
    data = b"".join(data for data, _ in read_file(path, _READ_SIZE))
    if not data:
        raise InputError("is empty", where=str(path), hint="give a file with a sentence per line")
    lines = data.removesuffix(b"\n").split(b"\n")
    return [_decoded(line, path, number, errors) for number, line in enumerate(lines, start=1)]


def _decoded(line: bytes, path: Path, number: int, errors: Errors) -> str:
    try:
        return line.removesuffix(b"\r").decode(errors=errors)
    except UnicodeDecodeError as error:
        what = f"line {number:,} is not UTF-8: byte 0x{line[error.start]:02x}"
        hint = "convert the file to UTF-8, or use `--errors replace` to read U+FFFD instead"
        raise InputError(what, where=str(path), hint=hint) from None
