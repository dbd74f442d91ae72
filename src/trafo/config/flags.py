"""Command-line flags -> dataclass, by tyro; its complaints come back as one-line `ConfigError`s."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import redirect_stderr
from itertools import dropwhile, takewhile
from typing import TypeVar

from trafo.config.fields import fields_table, nearest
from trafo.errors import ConfigError, TrafoError

T = TypeVar("T")

_ANSI_COLOUR = re.compile(r"\x1b\[[\d;]*m")
_RULE_OR_BORDER = re.compile(r"[-─╰╯]*")
_BAD_VALUE = re.compile(r"Error parsing (--\S+): (.*)")


def parse_flags(
    cls: type[T], flags: Sequence[str], *, default: T | None = None, prog: str | None = None
) -> T:
    """Build `cls` from flags over `default`, or over the class's own defaults.

    `--help` prints every flag with its default and leaves with `SystemExit(0)`.
    """
    import tyro

    base = tyro.MISSING_NONPROP if default is None else default
    complaint = io.StringIO()
    try:
        with redirect_stderr(complaint):
            parsed: tuple[T, list[str]] = tyro.cli(
                cls, args=list(flags), default=base, prog=prog, return_unknown_args=True
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise _refusal(cls, flags, stop, complaint.getvalue()) from None
    instance, unknown = parsed
    if unknown:
        raise _unknown(cls, unknown)
    return instance


def _unknown(cls: type, arguments: Sequence[str]) -> ConfigError:
    flag = next((argument for argument in arguments if argument.startswith("-")), None)
    if flag is None:
        return ConfigError(f"unexpected argument {arguments[0]!r}", hint="see --help")
    name = flag.partition("=")[0]
    guess = nearest(name.replace("_", "-"), _known_flags(cls))
    hint = f"did you mean {guess}?" if guess else "see --help for all of them"
    return ConfigError(f"unknown flag {name}", hint=hint)


def _not_known(cls: type, flags: Sequence[str]) -> list[str]:
    known = {*_known_flags(cls), "--help"}
    names = (flag.partition("=")[0].replace("_", "-") for flag in flags if flag.startswith("--"))
    return [name for name in names if name not in known]


def _known_flags(cls: type) -> list[str]:
    settings = fields_table(cls)
    negations = [
        re.sub(r"([^.]+)$", r"no-\1", setting.flag.removeprefix("--"))
        for setting in settings
        if setting.type == "bool"
    ]
    return [setting.flag for setting in settings] + ["--" + name for name in negations]


def _refusal(cls: type, flags: Sequence[str], stop: SystemExit, box: str) -> TrafoError:
    """The error behind tyro's exit: our own, raised by a dataclass, or the text in tyro's box."""
    cause: BaseException | None = stop
    while cause is not None:
        if isinstance(cause, TrafoError):
            return cause
        cause = cause.__context__
    text = _text_in_box(box)
    bad_value = _BAD_VALUE.fullmatch(text)
    if bad_value is None:
        # A required flag that is misspelt looks missing; the misspelling says more.
        if misspelt := _not_known(cls, flags):
            return _unknown(cls, misspelt)
        return ConfigError(text[:1].lower() + text[1:], hint="see --help")
    types = {setting.flag: setting.type for setting in fields_table(cls)}
    flag, reason = bad_value.groups()
    return ConfigError(f"{flag}: expected {types.get(flag, 'another value')}, but {reason}")


def _text_in_box(box: str) -> str:
    """The message out of tyro's box: what stands between its title and the next rule.

    On a terminal without UTF-8 the box has no sides, and a rule below the title.
    """
    lines = [line.strip(" │") for line in _ANSI_COLOUR.sub("", box).splitlines()]
    after_title = dropwhile(_RULE_OR_BORDER.fullmatch, lines[1:])
    message = takewhile(lambda line: not _RULE_OR_BORDER.fullmatch(line), after_title)
    return " ".join(message).rstrip(".")
