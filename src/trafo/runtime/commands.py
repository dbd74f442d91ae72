"""Commands to try next, ready to copy into the shell."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path


def command(*words: str | Path) -> str:
    """A command line of trafo that can be copied into the shell as it is."""
    return f"{program()} {shlex.join(map(str, words))}"


def program() -> str:
    """How the shell finds trafo: by its name, or else as it was started this time."""
    if shutil.which("trafo"):
        return "trafo"
    started = Path(sys.argv[0])
    if started.name == "trafo" and started.exists():
        return shlex.quote(str(started))
    return f"{shlex.quote(sys.executable)} -m trafo"
