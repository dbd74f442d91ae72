"""What `trafo --help` and `trafo <group> --help` print: the verbs and what they do."""

from __future__ import annotations

from collections.abc import Mapping

from trafo.cli.verbs import Group, Verb

SWITCHES = {
    "--help": "show what can be done here and leave",
    "--version": "show the version and leave",
    "--debug": "show the traceback of an error",
    "--quiet": "show no progress",
}


def listing(prog: str, description: str, table: Mapping[str, Verb | Group]) -> str:
    """The whole help text of the program or of one group."""
    verbs = {name: entry.description for name, entry in table.items()}
    return "\n\n".join(
        [
            f"usage: {prog} <verb> [options]",
            description,
            "verbs:\n" + _columns(verbs),
            "anywhere:\n" + _columns(SWITCHES),
            f"`{prog} <verb> --help` shows the options of a verb and their defaults.",
        ]
    )


def _columns(rows: Mapping[str, str]) -> str:
    width = max(map(len, rows)) + 2
    return "\n".join(f"  {name:<{width}}{description}" for name, description in rows.items())
