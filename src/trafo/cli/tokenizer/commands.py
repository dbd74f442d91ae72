"""Commands to try next, as one would type them."""

from __future__ import annotations

import shlex
from pathlib import Path


def command(verb: str, *arguments: str | Path) -> str:
    """A command line that can be copied into a shell as it is."""
    return shlex.join(["trafo", "tokenizer", verb, *map(str, arguments)])
