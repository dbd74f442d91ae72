"""One file -> its bytes, decompressed.

In: a path, local or remote; `.gz` (RFC 1952) and `.zst` (RFC 8878) are decompressed, anything else
is taken as it is. Out: bytes in order, each time with how far the file on disk has been read, for
progress. A damaged or truncated archive is an error, never a silently shorter text.
"""

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import zstandard

from trafo.errors import InputError, missing_package
from trafo.runtime.json_text import parse_json
from trafo.runtime.remote import RemotePath, remote_errors

_ZSTD_READ = 16 << 10  # small, because a few bytes of zstd can become 128 kB
_ZSTD_MAX_WINDOW = 1 << 31  # what `zstd --long=31` asks for


AnyPath = Path | RemotePath
Reads = Iterator[tuple[bytes, int]]  # bytes, and how much of the file has been read after them


def read_file(path: AnyPath, read_size: int, start: int = 0) -> Reads:
    """The decompressed bytes from the offset `start` to the end, about `read_size` at a time."""
    with _reading(path), _open(path) as file:
        if is_compressed(path):
            read = _read_gzip if path.suffix.lower() == ".gz" else _read_zstd
            yield from _skip(read(path, file, read_size), start)
        else:
            yield from _read_plain(file, read_size, start)


def read_undecoded(path: AnyPath, read_size: int) -> Iterator[bytes]:
    """The bytes as they are on disk."""
    with _reading(path), _open(path) as file:
        for data, _ in _read_plain(file, read_size, 0):
            yield data


def is_compressed(path: AnyPath) -> bool:
    """Whether the name says that the file must be decompressed."""
    return path.suffix.lower() in (".gz", ".zst")


def read_range(path: AnyPath, offset: int, size: int) -> bytes:
    """`size` bytes of a file from an offset, as they are on disk."""
    with _reading(path):
        if isinstance(path, RemotePath):
            data = path.read_range(offset, size)
        else:
            with _open(path) as file:
                file.seek(offset)
                data = file.read(size)
    if len(data) < size:
        raise InputError(
            f"ends at {offset + len(data):,} bytes, though it had {offset + size:,}",
            where=str(path),
            hint="it was changed while being read; run again",
        )
    return data


def _open(path: AnyPath) -> IO[bytes]:
    if isinstance(path, RemotePath):
        return path.open()
    return path.open("rb", buffering=0)  # large reads need no buffer


def _reading(path: AnyPath) -> AbstractContextManager[None]:
    return remote_errors(path) if isinstance(path, RemotePath) else _reading_here(path)


@contextmanager
def _reading_here(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot be read: {reason}", where=str(path)) from error


def _read_plain(file: IO[bytes], read_size: int, start: int) -> Reads:
    position = start
    file.seek(start)
    while data := file.read(read_size):
        position += len(data)
        yield data, position


def _read_gzip(path: AnyPath, file: IO[bytes], read_size: int) -> Reads:
    with gzip.GzipFile(fileobj=file) as archive:
        while True:
            try:
                data = archive.read(read_size)
            except EOFError as error:
                raise _truncated(path) from error
            except (gzip.BadGzipFile, zlib.error) as error:
                raise InputError(f"is damaged or not gzip: {error}", where=str(path)) from error
            if not data:
                return
            yield data, file.tell()


def _read_zstd(path: AnyPath, file: IO[bytes], read_size: int) -> Reads:
    """Join what is decompressed, a little at a time, into larger reads."""
    decompressed: list[bytes] = []
    size = 0
    for data in _decompress_zstd(path, file):
        decompressed.append(data)
        size += len(data)
        if size >= read_size:
            yield b"".join(decompressed), file.tell()
            decompressed, size = [], 0
    if size:
        yield b"".join(decompressed), file.tell()


def _decompress_zstd(path: AnyPath, file: IO[bytes]) -> Iterator[bytes]:
    """Decompress frame by frame, because only a frame's own object knows whether it is complete."""
    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_MAX_WINDOW)
    frame = None
    while compressed := file.read(_ZSTD_READ):
        while compressed:
            frame = frame or decompressor.decompressobj()
            try:
                yield frame.decompress(compressed)
            except zstandard.ZstdError as error:
                raise InputError(f"is damaged or not zstd: {error}", where=str(path)) from error
            compressed = b""
            if frame.eof:
                compressed, frame = frame.unused_data, None
    if frame is not None:
        raise _truncated(path)


def _skip(reads: Reads, num_bytes: int) -> Reads:
    """Drop the first bytes: a compressed stream can only be read from its beginning."""
    for data, disk_bytes in reads:
        if num_bytes < len(data):
            yield data[num_bytes:], disk_bytes
        num_bytes = max(0, num_bytes - len(data))


def _truncated(path: AnyPath) -> InputError:
    return InputError(
        "the compressed file ends too early",
        where=str(path),
        hint="it was cut off, perhaps while being copied; copy it again",
    )


Errors = Literal["strict", "replace"]

_ROWS_PER_BATCH = 1024  # few enough that long documents do not fill the memory


class _Line(NamedTuple):
    """Where a record is, formatted only for an error message."""

    path: AnyPath
    number: int

    def __str__(self) -> str:
        return f"{self.path}, line {self.number}"


def read_jsonl(path: AnyPath, field: str, read_size: int, errors: Errors) -> Reads:
    """The text of each line's object. Empty lines are skipped."""
    for number, (line, disk_bytes) in enumerate(_lines(path, read_size), start=1):
        if number == 1:
            line = line.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, as Windows writes it
        if line and not line.isspace():
            yield _line_text(line, field, _Line(path, number), errors), disk_bytes


def _lines(path: AnyPath, read_size: int) -> Reads:
    unfinished: list[bytes] = []  # a line longer than a read, joined only once
    disk_bytes = 0
    for data, disk_bytes in read_file(path, read_size):
        first, *rest = data.split(b"\n")
        unfinished.append(first)
        if rest:
            yield b"".join(unfinished), disk_bytes
            for line in rest[:-1]:
                yield line, disk_bytes
            unfinished = [rest[-1]]
    yield b"".join(unfinished), disk_bytes


def _line_text(line: bytes, field: str, where: _Line, errors: Errors) -> bytes:
    try:
        record = parse_json(line.decode("utf-8", errors))
    except UnicodeDecodeError as error:
        raise InputError(
            f"is not UTF-8 at byte {error.start + 1} of the line",
            where=str(where),
            hint="convert the file to UTF-8, or use `--errors replace` to read U+FFFD instead",
        ) from error
    except json.JSONDecodeError as error:
        raise InputError(
            f"is not JSON: {error.msg} at column {error.colno}",
            where=str(where),
            hint="each line must be one JSON object",
        ) from error
    except ValueError as error:  # absurdly long numbers, absurdly deep nesting
        raise InputError(f"is not usable JSON: {error}", where=str(where)) from error
    return _encode(_field_of(record, field, where), where, errors)


def _field_of(record: Any, field: str, where: _Line) -> str:
    if not isinstance(record, dict):
        raise InputError(
            "is not a JSON object", where=str(where), hint=f'write {{"{field}": "..."}}'
        )
    if field not in record:
        raise InputError(
            f"has no field {field!r}", where=str(where), hint=f"its fields are {_names(record)}"
        )
    text = record[field]
    if not isinstance(text, str):
        raise InputError(
            f"the field {field!r} is not a string but {json.dumps(text)[:40]}", where=str(where)
        )
    return text


def _encode(text: str, where: _Line, errors: Errors) -> bytes:
    """JSON can spell half a surrogate pair (`\\ud800`), which no UTF-8 can hold."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        if errors == "replace":
            return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
        raise InputError(
            f"has half of a surrogate pair, \\u{ord(text[error.start]):04x}",
            where=str(where),
            hint="fix the text, or use `--errors replace` to read U+FFFD instead",
        ) from error


def read_parquet(path: AnyPath, size: int, field: str) -> Reads:
    """The text of each row. The share of rows done serves as the share of bytes read."""
    table = _open_parquet(path)
    _check_column(table, path, field)
    num_rows = table.metadata.num_rows
    row = 0
    # Taken as bytes: whether they are UTF-8 is checked when the chunk is read.
    for batch in table.iter_batches(batch_size=_ROWS_PER_BATCH, columns=[field]):
        for text in batch.column(0).cast("large_string").cast("large_binary").to_pylist():
            row += 1
            if text is None:
                raise InputError(f"the column {field!r} is null", where=f"{path}, row {row}")
            yield text, size * row // num_rows


def _open_parquet(path: AnyPath) -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise missing_package(
            error.name or "pyarrow", "reading Parquet needs", where=str(path)
        ) from error
    try:
        source = path.open() if isinstance(path, RemotePath) else path
        return pyarrow.parquet.ParquetFile(source)
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise InputError(f"is damaged or not Parquet: {error}", where=str(path)) from error


def _check_column(table: Any, path: AnyPath, field: str) -> None:
    schema = table.schema_arrow
    if field not in schema.names:
        hint = f"its columns are {_names(schema.names)}"
        raise InputError(f"has no column {field!r}", where=str(path), hint=hint)
    kind = str(schema.field(field).type)
    if not kind.removeprefix("dictionary<values=").startswith(("string", "large_string")):
        raise InputError(f"the column {field!r} holds {kind}, not strings", where=str(path))


def _names(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"
