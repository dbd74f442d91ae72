"""Command-line flags -> dataclass, by tyro; its errors become one-line `ConfigError`s.

A switch (a `bool`) is turned on by `--x` or `--x true`, and off by `--no-x` or `--x false`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache, partial
from itertools import takewhile
from typing import TYPE_CHECKING, TypeVar

from trafo.config.fields import Setting, docstrings, fields_table
from trafo.errors import ConfigError, TrafoError, did_you_mean

if TYPE_CHECKING:
    from tyro._arguments import ArgumentDefinition
    from tyro._errors import ParseErrorEvent

T = TypeVar("T")


def parse_flags(
    cls: type[T], flags: Sequence[str], *, default: T | None = None, prog: str | None = None
) -> T:
    """Build `cls` from flags over `default`, or over the class's own defaults.

    `--help` prints every flag with its default and raises `SystemExit(0)`.
    """
    import tyro

    _refuse_empty_paths(cls, flags)
    if "-h" in flags or "--help" in flags:
        _join_lines_in_help()
    with _one_line_errors(cls, flags):
        parsed: tuple[T, list[str]] = tyro.cli(
            cls,
            args=list(_spelled_out(cls, flags)),
            default=tyro.MISSING_NONPROP if default is None else default,
            prog=prog,
            return_unknown_args=True,
        )
    instance, unknown = parsed
    if unknown:
        raise _unknown(cls, unknown)
    return instance


def _join_lines_in_help() -> None:
    """tyro joins the lines of a field's docstring, but not those that are indented."""
    from tyro import _docstrings

    @cache
    def joined(cls: type) -> dict[str, str]:
        return {name: " ".join(text.split()) for name, text in docstrings(cls).items()}

    _docstrings.parse_docstring_from_object = joined


def _spelled_out(cls: type, flags: Sequence[str]) -> Iterator[str]:
    """Switches with a value as tyro knows them: `--x true` is `--x`, `--x=false` is `--no-x`."""
    negations = _negations(cls)
    rest = list(flags)
    while rest:
        flag = rest.pop(0)
        name, equals, value = flag.partition("=")
        name = name.replace("_", "-")
        if name in negations:
            if not equals and rest and rest[0].lower() in ("true", "false"):
                value = rest.pop(0)
            if value and value.lower() not in ("true", "false"):
                raise ConfigError(f"{name}: expected true or false, got {value!r}")
            flag = negations[name] if value.lower() == "false" else name
        yield flag


def _refuse_empty_paths(cls: type, flags: Sequence[str]) -> None:
    """An empty path would mean the current folder, and usually comes from an unset variable."""
    settings = {setting.flag: setting for setting in fields_table(cls)}
    takes: Setting | None = None  # the flag that the next word belongs to; None: to no flag
    for word in flags:
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            takes = settings.get(name.replace("_", "-"))
            if takes is not None and takes.type == "bool":
                takes = None
            if equals and not value and takes is not None and takes.is_path:
                raise ConfigError(f"{name} is empty", hint="give a path")
        elif not word and (takes is None or takes.is_path):
            raise ConfigError(f"{takes.flag if takes else 'a path'} is empty", hint="give a path")
        if not word.startswith("--") and takes is not None and "tuple" not in takes.type:
            takes = None


def _negations(cls: type) -> dict[str, str]:
    """Each switch and what turns it off: `--model.tied-head`, `--model.no-tied-head`."""
    switches = [setting.flag for setting in fields_table(cls) if setting.type == "bool"]
    parts = [switch.removeprefix("--").rpartition(".") for switch in switches]
    return {
        switch: f"--{parent}{dot}no-{name}"
        for switch, (parent, dot, name) in zip(switches, parts, strict=True)
    }


def _unknown(cls: type, arguments: Sequence[str]) -> ConfigError:
    flag = next((argument for argument in arguments if argument.startswith("-")), None)
    if flag is None:
        return ConfigError(f"unexpected argument {arguments[0]!r}", hint="see --help")
    name = flag.partition("=")[0]
    hint = did_you_mean(name.replace("_", "-"), _known(cls), "see --help for all flags")
    return ConfigError(f"unknown flag {name}", hint=hint)


def _is_unknown(cls: type, word: str) -> bool:
    """A number such as -1 is not a flag."""
    name = word.partition("=")[0].replace("_", "-")
    is_flag = name.startswith("-") and name.lstrip("-")[:1].isalpha()
    return is_flag and name not in [*_known(cls), "-h", "--help"]


def _known(cls: type) -> list[str]:
    flags = [setting.flag for setting in fields_table(cls) if not setting.is_positional]
    return [*flags, *_negations(cls).values()]


def _one_line_errors(cls: type, flags: Sequence[str]) -> AbstractContextManager[None]:
    """Inside, tyro's errors are raised as our own instead of printed in a box."""
    try:
        from tyro._errors import on_parse_error
    except ImportError:  # not a public interface yet: without it, the box must do
        return nullcontext()
    return on_parse_error(partial(_refuse, cls, flags))


def _refuse(cls: type, flags: Sequence[str], event: ParseErrorEvent) -> None:
    from tyro import _errors as events

    # An unknown flag comes first: tyro then finds the words around it missing or empty.
    if unknown := [flag for flag in flags if _is_unknown(cls, flag)]:
        raise _unknown(cls, unknown)
    match event:
        case events.InstantiationFailure(message=message, argument=argument):
            raise _own_error() or _bad_value(cls, flags, argument, message)
        case events.InvalidChoice(argument=argument, value=value, choices=choices):
            hint = did_you_mean(value, choices)
            raise ConfigError(f"{_name(argument)}: {value!r} is not a choice", hint=hint)
        case events.BadValue(argument=argument):
            raise ConfigError(f"{_name(argument)} needs a value", hint="see --help")
        case events.MissingArgs(missing_arguments=missing):
            names = ", ".join(_name(each.arg) for each in missing)
            raise ConfigError(f"`{event.prog}` needs {names}", hint="see --help")


def _own_error() -> TrafoError | None:
    """The error that a dataclass raised in `__post_init__`, which tyro has wrapped in its own."""
    cause = sys.exception()
    while cause is not None and not isinstance(cause, TrafoError):
        cause = cause.__context__
    return cause


def _bad_value(
    cls: type, flags: Sequence[str], argument: ArgumentDefinition | None, message: str
) -> ConfigError:
    name = "" if argument is None else _name(argument)
    types = {setting.flag: setting.type for setting in fields_table(cls)}
    if name not in types:
        return ConfigError(f"{name}: {message}" if name else message, hint="see --help")
    return ConfigError(f"{name}: expected {types[name]}, got {_given(name, flags)!r}")


def _given(name: str, flags: Sequence[str]) -> str:
    """The words after a flag."""
    for i, flag in enumerate(flags):
        head, equals, value = flag.partition("=")
        if head.replace("_", "-") == name:
            words = takewhile(lambda word: not word.startswith("--"), flags[i + 1 :])
            return value if equals else " ".join(words)
    return ""


def _name(argument: ArgumentDefinition) -> str:
    """`--vocab-size`, or the word that help shows for a positional argument."""
    positional = argument.lowered.metavar if argument.is_positional() else None
    return str(positional or argument.display_name())
