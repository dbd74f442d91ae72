"""Files of sentence pairs -> pairs of sentences, each with the file and line it came from.

Three formats, recognized by the suffix of the file (before .gz or .zst):

- two plain files, aligned line by line: train.en train.de
- .tsv: source, tab, target
- .jsonl: an object per line with a field for each side

A line ends at a line feed, with or without a carriage return before it. Nothing else ends one, so
that files stay aligned whatever characters they hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from trafo.errors import InputError
from trafo.runtime.json_text import parse_json
from trafo.runtime.machine import available_memory
from trafo.runtime.sizes import format_size
from trafo.tokenizer.files import Errors, read_file

_READ_SIZE = 1 << 20
_MEMORY_PER_BYTE = 4  # the bytes twice while they are joined, and then their lines


def read_lines(path: str | Path, errors: Errors = "strict") -> list[str]:
    """Read all lines, at least one, without their ends."""
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


_COMPRESSED = (".gz", ".zst")
PADDING_CHARACTER = "\0"
"""not allowed in text: the id of byte 0 is the padding id"""


class Pair(NamedTuple):
    """A sentence and its translation."""

    source: str
    target: str
    file: str
    line: int

    @property
    def where(self) -> str:
        """For messages."""
        return f"{self.file} line {self.line:,}"


def read_pairs(
    files: Sequence[str | Path],
    fields: tuple[str, str] = ("source", "target"),
    errors: Errors = "strict",
) -> list[Pair]:
    """All pairs of all files, in order. Lines that are empty on both sides are left out.

    `fields` of JSON lines hold the two sides.
    """
    pairs = [pair for group in grouped_files(files) for pair in _read(group, fields, errors)]
    found = [pair for pair in pairs if _has_text(pair)]
    if not found:
        raise InputError("no sentence pairs in it", where=str(files[0]))
    return found


def grouped_files(files: Sequence[str | Path]) -> Iterator[list[Path]]:
    """A file with both sides alone, a plain file with the one after it."""
    paths = list(map(Path, files))
    if not paths:
        raise InputError("no sentence pairs", hint="give two aligned files: train.en train.de")
    while paths:
        group = [paths.pop(0)]
        if not _format(group[0]):
            if not paths or _format(paths[0]):
                raise InputError(
                    "is one side only",
                    where=str(group[0]),
                    hint="give the aligned file of the other side after it, or a .tsv or .jsonl",
                )
            group.append(paths.pop(0))
        yield group


def _format(path: Path) -> str:
    """`.tsv`, `.jsonl`, or nothing for plain text."""
    name = Path(path.stem) if path.suffix.lower() in _COMPRESSED else path
    return name.suffix.lower() if name.suffix.lower() in (".tsv", ".jsonl") else ""


def _read(group: Sequence[Path], fields: tuple[str, str], errors: Errors) -> Iterator[Pair]:
    if len(group) == 2:
        yield from _aligned(group[0], group[1], errors)
        return
    path = group[0]
    split = _split_json if _format(path) == ".jsonl" else _split_tabs
    for number, line in enumerate(read_lines(path, errors), start=1):
        if line.strip():
            source, target = split(line, fields, path, number)
            yield Pair(source.strip(), target.strip(), str(path), number)


def _aligned(one: Path, other: Path, errors: Errors) -> Iterator[Pair]:
    source, target = read_lines(one, errors), read_lines(other, errors)
    if len(source) != len(target):
        longer, shorter = (one, other) if len(source) > len(target) else (other, one)
        fewer, more = sorted((len(source), len(target)))
        raise InputError(
            f"line {fewer + 1:,} has no partner: {shorter} has {fewer:,} lines, this file {more:,}",
            where=str(longer),
            hint="line i of one must translate line i of the other",
        )
    for number, (left, right) in enumerate(zip(source, target, strict=True), start=1):
        pair = Pair(left.strip(), right.strip(), str(one), number)
        if not pair.target and pair.source:
            raise _empty(str(other), number)
        yield pair


def _split_tabs(line: str, fields: tuple[str, str], path: Path, number: int) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) != 2:
        what = f"line {number:,} has {len(columns)} columns"
        raise InputError(what, where=str(path), hint="it must be source, tab, target")
    return columns[0], columns[1]


def _split_json(line: str, fields: tuple[str, str], path: Path, number: int) -> tuple[str, str]:
    try:
        record = parse_json(line)
        source, target = (record[field] for field in fields)
    except ValueError:
        raise InputError(f"line {number:,} is not JSON", where=str(path)) from None
    except (KeyError, TypeError):
        what = f"line {number:,} has no fields {fields[0]!r} and {fields[1]!r}"
        raise InputError(what, where=str(path), hint="name the fields of the two sides") from None
    if not (isinstance(source, str) and isinstance(target, str)):
        raise InputError(f"line {number:,}: a side is not a string", where=str(path))
    return source, target


def _has_text(pair: Pair) -> bool:
    """Whether a pair has text, and an error if only one side has or if it holds padding."""
    if bool(pair.source) != bool(pair.target):
        raise _empty(pair.file, pair.line)
    if PADDING_CHARACTER in pair.source or PADDING_CHARACTER in pair.target:
        what = f"line {pair.line:,} has a NUL character"
        raise InputError(what, where=pair.file, hint="it is used as padding; remove it")
    return bool(pair.source)


def _empty(file: str, line: int) -> InputError:
    what = f"line {line:,} is empty on one side"
    return InputError(what, where=file, hint="remove the line from both sides, or fill it")
