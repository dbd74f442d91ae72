"""The two places trafo writes to: messages on stderr, results on stdout.

Everything that speaks to a person goes through here, so that `trafo ... > file` holds results and
nothing else. rich is imported at the first word, which keeps `trafo --help` quick.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, RenderableType


@cache
def messages() -> Console:
    """The console on stderr: progress, notes, warnings."""
    from rich.console import Console

    return Console(stderr=True, soft_wrap=True, highlight=False)


@cache
def results() -> Console:
    """The console on stdout: what the user asked for."""
    from rich.console import Console

    return Console(soft_wrap=True, highlight=False)


def say(text: str) -> None:
    """One message, word for word: brackets in a user's text are not markup."""
    messages().print(text, markup=False)


def show(result: RenderableType) -> None:
    """One result: a plain string word for word, or a rich table, text or panel."""
    results().print(result, markup=False)
