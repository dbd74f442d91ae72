"""JSON <-> objects, for files that may be damaged or hostile: errors name file and place."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trafo.errors import FormatError, InputError
from trafo.runtime.atomic import atomic_write


def parse_json(text: str | bytes, **settings: Any) -> Any:
    """Parse JSON; nesting too deep for Python is a ValueError, like any other mistake."""
    try:
        return json.loads(text, **settings)
    except RecursionError:
        raise ValueError("is nested too deeply") from None


def read_json(path: Path) -> dict[str, Any]:
    """Read an object. A duplicate key is refused: one of the values would be lost."""
    text = read_text(path)
    try:
        content = parse_json(text, object_pairs_hook=_refuse_duplicates)
    except json.JSONDecodeError as error:
        where = f"{path}, line {error.lineno}, column {error.colno}"
        raise FormatError(f"is not JSON: {error.msg}", where=where) from error
    except ValueError as error:
        raise FormatError(f"is not usable JSON: {error}", where=str(path)) from error
    if not isinstance(content, dict):
        raise FormatError("is not a JSON object", where=str(path))
    return content


def write_json(path: Path, content: Mapping[str, Any], indent: int | None = None) -> None:
    """Write an object."""
    with atomic_write(path, "wb") as file:
        file.write(json.dumps(content, ensure_ascii=False, indent=indent).encode() + b"\n")


def read_text(path: Path) -> str:
    """Read a whole file of UTF-8, its line ends left as they are."""
    if path.exists() and not path.is_file():  # a pipe would wait, a device would never end
        raise InputError("is not a regular file", where=str(path))
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from error
    except UnicodeDecodeError as error:
        raise FormatError(f"is not UTF-8 at byte {error.start}", where=str(path)) from error


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        [(key, _)] = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {key!r} is given twice")
    return content
