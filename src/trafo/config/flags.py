"""Command-line flags -> values by key, with one-line errors.

A switch (a `bool`) is turned on by `--x` or `--x true`, and off by `--no-x` or `--x false`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args, get_origin

from trafo.config.fields import REQUIRED, Setting, fields_table, union_of
from trafo.config.structure import MISFITS, convert_value
from trafo.errors import ConfigError, did_you_mean

# A number such as -1 is not a flag, nor is a sentence that begins with a dash.
_FLAG = re.compile(r"--?[a-zA-Z][\w.-]*(=.*)?", re.DOTALL)


def read_flags(cls: type, words: Sequence[str]) -> dict[str, Any]:
    """Read the settings that the words give, by dotted key and converted to their types."""
    settings = fields_table(cls)
    flags = {f: s for s in settings if not s.is_positional for f in (s.flag, *s.aliases)}
    switches_off = {s.no_flag: s for s in flags.values() if s.is_switch}
    _refuse_unknown(words, [*flags, *switches_off])
    given: dict[str, Any] = {}
    rest, loose = list(words), list[str]()
    while rest:
        word = rest.pop(0)
        if word == "--":
            loose += rest
            break
        if not _FLAG.fullmatch(word):
            loose.append(word)
            continue
        name, equals, value = word.partition("=")
        name = name.replace("_", "-")
        if name in switches_off and not equals:
            given[switches_off[name].key] = False
        elif name in switches_off:
            raise ConfigError(f"{name} takes no value", hint=f"write {name}")
        elif name in flags:
            taken = [value] if equals else _take_values(flags[name], rest)
            given[flags[name].key] = _convert_words(flags[name], taken)
    return given | _read_positional([s for s in settings if s.is_positional], loose)


def _take_values(setting: Setting, rest: list[str]) -> list[str]:
    """Remove the words that belong to the flag before them."""
    if setting.is_switch:
        return [rest.pop(0)] if rest and rest[0].lower() in ("true", "false") else ["true"]
    most = _count(setting)
    end = next((i for i, word in enumerate(rest) if word == "--" or _FLAG.fullmatch(word)), None)
    taken = rest[:end][:most]
    del rest[: len(taken)]
    if most is not None and len(taken) < most:
        raise ConfigError(f"{setting.flag} needs a value", hint="see --help")
    return taken


def _count(setting: Setting) -> int | None:
    """Count the words that the setting takes; None: any number."""
    (part, *_), args = union_of(setting.hint), get_args(setting.hint)
    if get_origin(part) not in (list, tuple):
        return 1
    return None if get_origin(part) is list or args[-1] is ... else len(args)


def _convert_words(setting: Setting, words: list[str]) -> Any:
    if setting.is_path and "" in words:
        raise ConfigError(f"{setting.label} is empty", hint="give a path")
    one = _count(setting) == 1
    text = " ".join(words)
    try:
        return convert_value(setting.hint, words[0] if one else words, is_word=True)
    except MISFITS:
        parts = union_of(setting.hint)
        choices = [str(c) for part in parts if get_origin(part) is Literal for c in get_args(part)]
        if choices:
            hint = did_you_mean(text, choices)
            raise ConfigError(f"{setting.label}: {text!r} is not a choice", hint=hint) from None
        expected = "true or false" if setting.is_switch else setting.type
        raise ConfigError(f"{setting.label}: expected {expected}, got {text!r}") from None


def _read_positional(settings: list[Setting], words: list[str]) -> dict[str, Any]:
    """Give each its word, and the words between to the one that takes several."""
    if "" in words:
        raise ConfigError("a path is empty", hint="give a path")
    given = {}
    for place, setting in enumerate(settings):
        kept = len(settings) - place - 1 if _count(setting) is None else len(words) - 1
        taken, words = words[: max(len(words) - kept, 0)], words[max(len(words) - kept, 0) :]
        # A command that needs several says so itself if there are none.
        if taken or (_count(setting) is None and setting.default is REQUIRED):
            given[setting.key] = _convert_words(setting, taken)
    if words:
        raise ConfigError(f"unexpected argument {words[0]!r}", hint="see --help")
    return given


def _refuse_unknown(words: Sequence[str], known: list[str]) -> None:
    for word in words:
        name = word.partition("=")[0]
        if word == "--":
            return
        if _FLAG.fullmatch(word) and name.replace("_", "-") not in known:
            hint = did_you_mean(name.replace("_", "-"), known, "see --help for all flags")
            raise ConfigError(f"unknown flag {name}", hint=hint)


def require_all(cls: type, given: Mapping[str, Any], prog: str | None) -> None:
    """Refuse a command that lacks a setting without a default; `given` is by dotted key."""
    lacking = [s.label for s in fields_table(cls) if s.default is REQUIRED and s.key not in given]
    if lacking:
        raise ConfigError(f"`{prog or 'trafo'}` needs {', '.join(lacking)}", hint="see --help")
