"""Messages of the service to its terminal."""

from __future__ import annotations

from contextlib import suppress

from trafo.runtime.console import say


def tell(text: str) -> None:
    """Print a message; a full disk or a closed pipe does not stop the service."""
    with suppress(OSError):
        say(text)
