"""The help page of a command: every flag with what it takes, what it does, and its default."""

from __future__ import annotations

import inspect
import shutil
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce

from trafo.config.fields import REQUIRED, Setting, fields_table, typed_fields

_INDENT = 18  # of the texts
_OPTIONS = "options:\n  -h, --help      show this help and exit"


def format_help(
    cls: type,
    prog: str,
    default: object = None,
    *,
    groups: Mapping[str, Sequence[str]] | None = None,
    automatic: Collection[str] = (),
    note: str = "",
) -> str:
    """Write the page for the flags of `cls`.

    `default` is an instance whose values are the defaults. `groups` selects settings by key, below
    a branch or below no branch: all of them unless given. The defaults of `automatic` ones do not
    apply.
    """
    settings = {setting.key: setting for setting in fields_table(cls)}
    positional = [setting for setting in settings.values() if setting.is_positional]
    names = [s.metavar if s.default is REQUIRED else f"[{s.metavar}]" for s in positional]
    parts = [
        " ".join([f"usage: {prog} [-h] [OPTIONS]", *names]),
        inspect.cleandoc(cls.__doc__ or ""),
    ]
    sections = {"positional arguments:": positional} if positional else {}
    for branch, keys in (groups or _group(settings.values())).items():
        title = f"{branch} options: {_first_line(cls, branch)}" if branch else _OPTIONS
        sections[title] = [settings[key] for key in keys]
    for title, section in sections.items():
        rows = [(_usage(s), _meaning(s, default, s.key in automatic)) for s in section]
        parts.append("\n".join([title, *_columns(rows)]))
    return "\n\n".join([*parts, *filter(None, [note])]) + "\n"


def _group(settings: Iterable[Setting]) -> dict[str, list[str]]:
    """The flags of each branch."""
    groups: dict[str, list[str]] = {"": []}
    for setting in settings:
        if not setting.is_positional:
            groups.setdefault(setting.key.rpartition(".")[0], []).append(setting.key)
    return groups


def _columns(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Each text beside its flag, or below it where the flag is too long."""
    width = min(shutil.get_terminal_size((80, 24)).columns, 100)
    for left, right in rows:
        indent = " " * _INDENT
        lines = textwrap.wrap(
            right, width, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False
        )
        is_short = len(left) + 4 <= _INDENT
        yield from [f"  {left}".ljust(_INDENT) + lines.pop(0).strip() if is_short else f"  {left}"]
        yield from lines


def _usage(setting: Setting) -> str:
    """`--steps INT`, `--overwrite, --no-overwrite`, `TEXT ...`."""
    if setting.is_positional:
        return setting.metavar
    if setting.is_switch:
        return f"{setting.flag}, {setting.no_flag}"
    return f"{', '.join([setting.flag, *setting.aliases])} {setting.metavar}"


def _meaning(setting: Setting, default: object, is_automatic: bool) -> str:
    """What the setting does, and its default."""
    if is_automatic:
        return f"{' '.join(setting.help.split())} (automatic)"
    value = setting.default
    if default is not None:
        value = reduce(getattr, setting.key.split("."), default)
    if isinstance(value, tuple):
        value = " ".join(repr(str(part)) for part in value)
    is_plain = value == "" or (value is None and "None" not in setting.help)
    shown = "(optional)" if is_plain else f"(default: {value})"
    return f"{' '.join(setting.help.split())} {'(required)' if value is REQUIRED else shown}"


def _first_line(cls: type, branch: str) -> str:
    """What the class of a branch says it is."""
    for name in branch.split("."):
        cls = next(hint for field, hint in typed_fields(cls) if field.name == name)
    return inspect.cleandoc(cls.__doc__ or "").partition("\n")[0]
