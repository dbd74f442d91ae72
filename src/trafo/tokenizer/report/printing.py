"""Tables and lines -> stdout."""

from __future__ import annotations

from rich.console import Group, RenderableType

from trafo.runtime.console import results, show


def print_parts(*parts: RenderableType) -> None:
    """Print one below the other; in a file or pipe without the blanks that fill up the columns."""
    console = results()
    if console.is_terminal:
        show(Group(*parts))
        return
    with console.capture() as capture:
        console.print(Group(*parts), markup=False)
    show("\n".join(line.rstrip() for line in capture.get().splitlines()))
