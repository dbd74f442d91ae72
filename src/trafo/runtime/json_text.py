"""JSON -> objects, from files that anybody may have written."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes, **settings: Any) -> Any:
    """`json.loads`; nesting beyond what Python can follow is a ValueError as any other mistake."""
    try:
        return json.loads(text, **settings)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
