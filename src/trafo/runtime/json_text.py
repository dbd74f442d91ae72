"""JSON -> objects, from files that may be damaged or hostile."""

from __future__ import annotations

import json
from typing import Any


def parse_json(text: str | bytes, **settings: Any) -> Any:
    """`json.loads`; nesting that is too deep for Python is a ValueError, like any other mistake."""
    try:
        return json.loads(text, **settings)
    except RecursionError:
        raise ValueError("is nested too deeply") from None
