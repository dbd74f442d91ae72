"""What the service says to whoever started it."""

from __future__ import annotations

from contextlib import suppress

from trafo.runtime.console import say


def tell(text: str) -> None:
    """One message; where it cannot be written (a full disk, a closed pipe), the service goes on."""
    with suppress(OSError):
        say(text)
