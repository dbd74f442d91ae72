"""A text file -> its lines, for formats in which a line is a sentence.

`.gz` and `.zst` are decompressed. A line ends at a line feed, with or without a carriage return
before it; nothing else ends one, so that files stay aligned whatever characters they hold.
"""

from __future__ import annotations

from pathlib import Path

from trafo.errors import InputError
from trafo.runtime.machine import available_memory
from trafo.runtime.sizes import format_size
from trafo.tokenizer.reading.files import read_file
from trafo.tokenizer.reading.records import Errors

_READ_SIZE = 1 << 20
_MEMORY_PER_BYTE = 4  # the bytes twice while they are joined, and then their lines


def read_lines(path: str | Path, errors: Errors = "strict") -> list[str]:
    """All lines without their ends; at least one."""
    path = Path(path)
    if path.exists() and not path.is_file():
        what = "is a pipe, a folder or a device"
        raise InputError(what, where=str(path), hint="save the lines to a file first")
    data = _all_bytes(path)
    if not data:
        raise InputError("is empty", where=str(path), hint="give a file with a sentence per line")
    lines = data.removesuffix(b"\n").split(b"\n")
    return [_decoded(line, path, number, errors) for number, line in enumerate(lines, start=1)]


def _all_bytes(path: Path) -> bytes:
    """The content, unless memory would run out, as a small compressed file can make it."""
    most = available_memory() // _MEMORY_PER_BYTE
    parts, size = [], 0
    for part, _ in read_file(path, _READ_SIZE):
        parts.append(part)
        size += len(part)
        if size > most:
            raise InputError(
                f"has more than {format_size(most)} of text, too much for this machine's memory",
                where=str(path),
                hint="divide it into several files",
            )
    return b"".join(parts)


def _decoded(line: bytes, path: Path, number: int, errors: Errors) -> str:
    try:
        return line.removesuffix(b"\r").decode(errors=errors)
    except UnicodeDecodeError as error:
        what = f"line {number:,} is not UTF-8: byte 0x{line[error.start]:02x}"
        hint = "convert the file to UTF-8, or use `--errors replace` to read U+FFFD instead"
        raise InputError(what, where=str(path), hint=hint) from None
