"""Files of records -> the text of each record: JSON lines and Parquet.

In: a path and the name of the field that holds the text. Out: the text (UTF-8 bytes) of one record
after the other, with how far the file on disk has been read. `.jsonl` holds one JSON object per
line and may be compressed; Parquet needs the package `pyarrow`.
"""

import json
from typing import Any, Literal, NamedTuple

from trafo.errors import InputError, missing_package
from trafo.runtime.json_text import parse_json
from trafo.runtime.remote import RemotePath
from trafo.tokenizer.reading.files import AnyPath, Reads, read_file

Errors = Literal["strict", "replace"]

_ROWS_PER_BATCH = 1024  # few enough that long documents do not fill the memory


class _Line(NamedTuple):
    """Where a record is; formatted only for an error message."""

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
