"""Input paths -> blocks of bytes, whatever the files' format.

In: a file, several, a folder or a glob; plain text, `.gz`, `.zst`, `.jsonl` (also compressed) and
`.parquet`. Out: one `Source` per file, which yields blocks of raw bytes in order. Blocks may cut
anywhere, even inside a character; whoever scans them finds the safe places. Memory is a few
blocks, however large the files are.
"""

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from trafo.errors import InputError
from trafo.tokenizer.reading.files import is_seekable_text, read_chunks
from trafo.tokenizer.reading.records import Document, Errors, read_jsonl, read_parquet

BLOCK_SIZE = 4 << 20

Paths = str | Path | Sequence[str | Path]


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of a source's text.

    `document_ends` are the places in `data` where documents end, which no word may cross. The end
    of the source ends a document too, listed or not: plain text is one document per file.
    """

    data: bytes
    offset: int  # where data begins in the source's text, decompressed
    disk_bytes: int  # how much of the file has been read after this block
    document_ends: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Source:
    """One input file. `field` names the text in records; `errors` is for JSON's own text."""

    path: Path
    size: int  # bytes on disk
    field: str = "text"
    errors: Errors = "strict"

    @property
    def is_plain_file(self) -> bool:
        """Whether its text is what is on disk, and any place in it can be gone to."""
        return self._kind() not in ("jsonl", "ndjson", "parquet") and is_seekable_text(self.path)

    def blocks(self, start_offset: int = 0, block_size: int = BLOCK_SIZE) -> Iterator[Block]:
        """The text from start_offset to the end; records are read again and skipped."""
        if (documents := self._documents(block_size)) is not None:
            return _skip_blocks(_pack(documents, block_size), start_offset)
        return self._text_blocks(start_offset, block_size)

    def _documents(self, block_size: int) -> Iterator[Document] | None:
        kind = self._kind()
        if kind in ("jsonl", "ndjson"):
            return read_jsonl(self.path, self.field, block_size, self.errors)
        if kind == "parquet":
            return read_parquet(self.path, self.field)
        return None

    def _kind(self) -> str:
        """The last ending of the name that is not one of a compressed file."""
        suffixes = self.path.name.lower().split(".")[1:]
        return next((suffix for suffix in reversed(suffixes) if suffix not in ("gz", "zst")), "")

    def _text_blocks(self, start_offset: int, block_size: int) -> Iterator[Block]:
        offset = start_offset
        for data, disk_bytes in read_chunks(self.path, block_size, start_offset):
            yield Block(data, offset, disk_bytes)
            offset += len(data)


def open_sources(paths: Paths, field: str = "text", errors: Errors = "strict") -> list[Source]:
    """One source per file, in the order of `expand_paths`."""
    return [Source(path, path.stat().st_size, field, errors) for path in expand_paths(paths)]


def fingerprint(paths: Paths) -> list[tuple[str, int, int]]:
    """(path, size, time of change in ns) per file: equal as long as the input is the same."""
    facts = [(path.resolve(), path.stat()) for path in expand_paths(paths)]
    return [(str(path), stat.st_size, stat.st_mtime_ns) for path, stat in facts]


def expand_paths(paths: Paths) -> list[Path]:
    """The files meant by a file, a folder (all below it), a glob, or several of these.

    Each file comes once, in the order given, those of a folder or glob sorted; hidden files inside
    a folder are left out.
    """
    given = [paths] if isinstance(paths, str | Path) else list(paths)
    if not given:
        raise InputError("no input files", hint="give a file, a folder or a glob such as 'in/*.gz'")
    once: dict[Path, Path] = {}
    for path in given:
        for file in _files_of(path):
            once.setdefault(file.resolve(), file)
    return list(once.values())


def _files_of(path: str | Path) -> list[Path]:
    plain = Path(path)
    if plain.is_dir():
        files = sorted(_walk(plain))
    elif plain.exists():
        return [plain]
    elif glob.has_magic(str(path)):
        # Path.glob refuses absolute patterns, and a user's pattern is what it is.
        matches = sorted(glob.glob(str(path), recursive=True))  # noqa: PTH207
        files = [Path(match) for match in matches if not Path(match).is_dir()]
    else:
        raise InputError("no such file or folder", where=str(path), hint="check the spelling")
    if not files:
        raise InputError("no files found", where=str(path), hint="hidden files do not count")
    return files


def _walk(folder: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(parent, name) for name in names if not name.startswith("."))


def _pack(documents: Iterable[Document], block_size: int) -> Iterator[Block]:
    """Join many small documents into few blocks."""
    texts: list[bytes] = []
    ends: list[int] = []
    offset = size = disk_bytes = 0
    for text, disk_bytes in documents:
        texts.append(text)
        size += len(text)
        ends.append(size)
        if size >= block_size:
            yield Block(b"".join(texts), offset, disk_bytes, ends)
            offset += size
            texts, ends, size = [], [], 0
    if ends:
        yield Block(b"".join(texts), offset, disk_bytes, ends)


def _skip_blocks(blocks: Iterator[Block], start_offset: int) -> Iterator[Block]:
    """Drop what lies before start_offset."""
    for block in blocks:
        cut = start_offset - block.offset
        if cut <= 0:
            yield block
        elif cut < len(block.data):
            ends = [end - cut for end in block.document_ends if end > cut]
            yield Block(block.data[cut:], start_offset, block.disk_bytes, ends)
