"""Where trafo keeps what it can make or fetch again: ~/.cache/trafo, or $TRAFO_CACHE."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """The folder; it need not exist yet."""
    return Path(os.environ.get("TRAFO_CACHE") or os.path.expanduser("~/.cache/trafo"))  # noqa: PTH111
