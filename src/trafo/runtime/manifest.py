"""Manifests: JSON beside data that says what the data was made from and how much of it is valid.

The data is on disk before its manifest, and a manifest is replaced as a whole. So what it says is
true even after a kill.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trafo.runtime.atomic import atomic_write
from trafo.runtime.json_text import parse_json


def write_manifest(path: Path, fingerprint: Mapping[str, Any] | list[Any], **content: Any) -> None:
    """Say that the data described by `content` was made from what the fingerprint describes."""
    with atomic_write(path, "w") as file:
        json.dump({"key": fingerprint, **content}, file)


def read_manifest(path: Path, fingerprint: Mapping[str, Any] | list[Any]) -> dict[str, Any] | None:
    """The content of a manifest; None if there is none, or for another fingerprint."""
    with suppress(OSError, ValueError, KeyError, AttributeError, TypeError):
        content: dict[str, Any] = parse_json(path.read_text())
        if content.pop("key") == json.loads(json.dumps(fingerprint)):
            return content
    return None
