"""Input paths -> the files they name, and the raw text of each.

In: a file, several, a folder or a glob, also as URLs (`s3://bucket/*.gz`); plain text, `.gz`,
`.zst`, `.jsonl` (also compressed) and `.parquet`. Out: `Inputs`, made once for a job, which
says what identifies the text and reads it.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISREG
from typing import Any

from trafo.errors import InputError, check_types
from trafo.runtime.remote import RemotePath, parse_path
from trafo.tokenizer.files import (
    AnyPath,
    Errors,
    is_compressed,
    read_file,
    read_jsonl,
    read_parquet,
)

Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True, slots=True)
class InputFile:
    """One file, as it was when the job began."""

    path: AnyPath
    size: int  # bytes on disk
    changed: int  # time of the last change, in ns

    @property
    def has_records(self) -> bool:
        """Whether it holds records (JSON lines, Parquet) rather than one text."""
        return self.form in ("jsonl", "ndjson", "parquet")

    @property
    def is_seekable(self) -> bool:
        """Whether its text can be read from any offset: it is not compressed."""
        return not self.has_records and not is_compressed(self.path)

    @property
    def form(self) -> str:
        """The last suffix of its name that is not that of a compression."""
        suffixes = self.path.name.lower().split(".")[1:]
        return next((suffix for suffix in reversed(suffixes) if suffix not in ("gz", "zst")), "")


@dataclass(frozen=True)
class Inputs:
    """The files of a job in order, and how their text is read.

    `field` names the text in records. `errors="replace"` reads U+FFFD where text is not UTF-8.
    """

    files: tuple[InputFile, ...]
    field: str = "text"
    errors: Errors = "strict"

    @property
    def size(self) -> int:
        """Bytes on disk."""
        return sum(file.size for file in self.files)

    def fingerprint(self) -> dict[str, Any]:
        """Everything that decides the text: equal as long as no file is changed."""
        files = [[_name(file.path), file.size, file.changed] for file in self.files]
        return {"inputs": files, "field": self.field, "errors": self.errors}

    def read(self, file: InputFile, read_size: int, start: int = 0) -> Iterator[tuple[bytes, int]]:
        """Raw text, and how much of the file on disk has been read after it.

        A file of records gives one record at a time, any other file about `read_size` bytes, from
        the offset `start` in its text; these may end anywhere, even inside a character.
        """
        if file.form == "parquet":
            return read_parquet(file.path, file.size, self.field)
        if file.has_records:
            return read_jsonl(file.path, self.field, read_size, self.errors)
        return read_file(file.path, read_size, start)

    def first_characters(self, number: int) -> str:
        """The first characters, at most `number`, of the first file that is not empty."""
        wanted = 4 * number  # bytes: a character has up to four
        for file in self.files:
            text = b""
            for raw, _ in self.read(file, max(1, wanted)):
                text += raw
                if len(text) >= wanted:
                    break
            if text:
                return text.decode("utf-8", errors="replace")[:number]
        return ""


@check_types
def open_inputs(paths: Paths | Inputs, field: str = "text", errors: Errors = "strict") -> Inputs:
    """Open the files that paths name, in the order of `expand_paths`. `Inputs` are returned."""
    if isinstance(paths, Inputs):
        return paths
    files = tuple(_input_file(path) for path in expand_paths(paths))
    return Inputs(files, field, errors)


def _input_file(path: AnyPath) -> InputFile:
    """A pipe or a device is refused: it cannot be read twice, or never ends."""
    if isinstance(path, RemotePath):
        return InputFile(path, *path.size_and_change())
    stat = path.stat()
    if not S_ISREG(stat.st_mode):
        raise InputError(
            "is a pipe or a device, and a text is read more than once",
            where=str(path),
            hint="save it to a file first; `tokenizer encode` and `generate` also read stdin",
        )
    return InputFile(path, stat.st_size, stat.st_mtime_ns)


def expand_paths(paths: Paths) -> list[AnyPath]:
    """The files that a file, a folder (all below it), a glob, or several of these name.

    Each file comes once, in the order given, those of a folder or glob sorted; hidden files inside
    a folder are left out.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise InputError("no input files", hint="give a file, a folder or a glob such as 'in/*.gz'")
    once: dict[AnyPath, AnyPath] = {}
    for path in given:
        for file in _files_of(path):
            once.setdefault(file.resolve() if isinstance(file, Path) else file, file)
    return list(once.values())


def _name(path: AnyPath) -> str:
    """Return the URL or the absolute path, with bytes that are not UTF-8 in hexadecimal."""
    if isinstance(path, RemotePath):
        return path.url
    return os.fsencode(path.resolve()).decode("utf-8", errors="backslashreplace")


def _files_of(path: str | Path) -> Sequence[AnyPath]:
    if not str(path):
        raise InputError("the path of a text is empty", hint="give a file, a folder or a glob")
    plain = parse_path(path)
    if isinstance(plain, RemotePath):
        return _remote_files_of(plain)
    if plain.is_dir():
        files = sorted(_walk(plain))
    elif plain.exists():
        return [plain]
    elif glob.has_magic(str(plain)):
        # Path.glob refuses absolute patterns.
        matches = sorted(glob.glob(str(plain), recursive=True))  # noqa: PTH207
        files = [Path(match) for match in matches if not Path(match).is_dir()]
    else:
        raise InputError("no such file or folder", where=str(path), hint="check the spelling")
    if not files:
        raise InputError("no files found", where=str(path), hint="hidden files do not count")
    return files


def _remote_files_of(path: RemotePath) -> Sequence[AnyPath]:
    if files := path.files():
        return files
    what = "no files found" if glob.has_magic(path.url) else "no such file or folder"
    raise InputError(what, where=str(path), hint="check the spelling, and that the bucket exists")


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))
