"""`--config FILE` and `--config=FILE`, taken out of the arguments before they are parsed."""

from __future__ import annotations

from trafo.errors import ConfigError


def take_value(arguments: list[str], flag: str) -> str | None:
    """Remove a flag and its value; returns the value, or None if the flag is not given."""
    for index, argument in enumerate(arguments):
        name, equals, value = argument.partition("=")
        if name != flag:
            continue
        if equals and value:
            del arguments[index]
            return value
        if equals or not "".join(arguments[index + 1 : index + 2]):
            raise ConfigError(f"{flag} needs a value", hint=f"write {flag} FILE")
        value = arguments[index + 1]
        del arguments[index : index + 2]
        return value
    return None
