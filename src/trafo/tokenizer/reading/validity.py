"""Bytes of files -> valid UTF-8, by refusing what is not, or by replacing it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from trafo.errors import InputError
from trafo.tokenizer.kernels.arrays import Bytes, Int64s
from trafo.tokenizer.kernels.utf8 import first_invalid
from trafo.tokenizer.reading.files import AnyPath
from trafo.tokenizer.reading.records import Errors


def valid_text(data: Bytes, path: AnyPath, offset: int, errors: Errors) -> Bytes:
    """The text at an offset of a file; U+FFFD where it is not UTF-8, or an error."""
    if errors == "strict":
        refuse_invalid(data, path, offset)
    elif first_invalid(data) >= 0:
        text = data.tobytes().decode("utf-8", errors="replace")
        return np.frombuffer(text.encode(), np.uint8)
    return data


def valid_records(data: Bytes, ends: Int64s, path: AnyPath, errors: Errors) -> tuple[Bytes, Int64s]:
    """The same for records, each valid by itself; also where they end then."""
    if first_invalid(data) < 0 and not _begins_inside_character(data, ends):
        return data, ends
    raw = data.tobytes()
    spans = pairwise([0, *ends.tolist()])
    records = [_valid_record(raw[start:end], path, errors) for start, end in spans]
    lengths = np.array([len(record) for record in records], np.int64)
    return np.frombuffer(b"".join(records), np.uint8), np.cumsum(lengths)


def refuse_invalid(data: Bytes, path: AnyPath, offset: int) -> None:
    """Raise if a text, which begins at an offset of its file, is not UTF-8."""
    invalid = first_invalid(data)
    if invalid >= 0:
        raise _not_utf8(int(data[invalid]), f"{offset + invalid:,}", path)


def _valid_record(record: bytes, path: AnyPath, errors: Errors) -> bytes:
    try:
        return record.decode("utf-8", errors=errors).encode()
    except UnicodeDecodeError as error:
        raise _not_utf8(record[error.start], f"{error.start:,} of a record", path) from None


def _not_utf8(byte: int, offset: str, path: AnyPath) -> InputError:
    return InputError(
        f"not UTF-8: byte 0x{byte:02x} at offset {offset}",
        where=str(path),
        hint="fix the file, or use `--errors replace` to read U+FFFD instead",
    )


def _begins_inside_character(data: Bytes, ends: Int64s) -> bool:
    """Whether a record begins with the rest of a character."""
    starts = ends[ends < len(data)]
    return bool(np.any(data[starts] & 0xC0 == 0x80))
