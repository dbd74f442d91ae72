"""Plain nested values -> the types that a dataclass is annotated with -> an instance of it.

`convert` checks names and types and knows where a value came from. `build` makes the dataclasses,
which check themselves: a file may be valid only together with the flags over it.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_origin

from trafo.config.fields import (
    REQUIRED,
    default_of,
    fields_table,
    is_dataclass_type,
    type_name,
    typed_fields,
    union_of,
)
from trafo.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")
Tree = Mapping[str, Any]

MISFITS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""what `convert_value` raises"""
_SWITCH = {"true": True, "yes": True, "on": True, "1": True}
_SWITCH |= {"false": False, "no": False, "off": False, "0": False}


def convert(cls: type, tree: Tree, where: str, prefix: str = "") -> dict[str, Any]:
    """Convert the values to the types of the fields of `cls`; `where` names their source."""
    hints = {field.name: hint for field, hint in typed_fields(cls)}
    typed = {}
    for name, value in tree.items():
        key = f"{prefix}{name}"
        if name not in hints:
            hint = _nearest_key(cls, str(name), prefix)
            raise ConfigError(f"unknown key {key}", where=where, hint=hint)
        if not is_dataclass_type(hints[name]):
            try:
                typed[name] = convert_value(hints[name], value)
            except MISFITS:
                raise _wrong_type(key, hints[name], value, where) from None
        elif isinstance(value, Mapping):
            typed[name] = convert(hints[name], value, where, f"{key}.")
        else:
            known = ", ".join(field.name for field, _ in typed_fields(hints[name]))
            what = f"{key}: expected keys below it, got {value!r:.100}"
            raise ConfigError(what, where=where, hint=f"it has {known}")
    return typed


def build(cls: type[D], tree: Tree, default: D | None = None) -> D:
    """Make an instance of converted values over those of `default`, or of the class."""
    values = {}
    for field, hint in typed_fields(cls):
        name = field.name
        base = default_of(field) if default is None else getattr(default, name)
        if name not in tree:
            if default is not None:
                values[name] = base
        elif is_dataclass_type(hint):
            values[name] = build(hint, tree[name], None if base is REQUIRED else base)
        else:
            values[name] = tree[name]
    return cls(**values)


def convert_value(hint: Any, value: Any, is_word: bool = False) -> Any:
    """Convert a value, or a word of the command line, to a type; raise one of MISFITS if it cannot.

    A word may spell a number, a switch or None. Values of a file do so where nothing else fits.
    """
    parts, origin, args = union_of(hint), get_origin(hint), get_args(hint)
    if len(parts) > 1:
        return _first_of(parts, value, is_word)
    if origin is Literal:
        return args[[str(arg) for arg in args].index(value)] if is_word else args[args.index(value)]
    if origin is dict:
        key, inner = args
        return {
            convert_value(key, k, is_word): convert_value(inner, v, is_word)
            for k, v in value.items()
        }
    if origin in (list, tuple):
        return origin(_entries(args, value, is_word))
    if hint is Any or hint is object:
        return value
    if hint is NoneType:
        return {"None" if is_word else None: None}[value]
    if hint is bool:
        return _SWITCH[str(value).lower()]
    if isinstance(value, bool) and hint is not str:
        raise TypeError(value)
    if issubclass(hint, enum.Enum):
        return hint[value]
    wanted = {int: int | str, float: int | float | str, str: int | float | str, Path: str}
    if not isinstance(value, wanted.get(hint, hint)):
        raise TypeError(value)
    return hint(value)


def _first_of(parts: tuple[Any, ...], value: Any, is_word: bool) -> Any:
    """Convert to the type that the value has, else to the first one that can take it."""
    if not is_word and type(value) in parts:
        return value
    for part in sorted(parts, key=lambda part: part is not NoneType):
        try:
            return convert_value(part, value, is_word)
        except MISFITS:
            continue
    raise TypeError(value)


def _entries(args: tuple[Any, ...], value: Any, is_word: bool) -> list[Any]:
    """Convert the entries of a list: all of one type, or each of its own."""
    if not isinstance(value, list | tuple):
        raise TypeError(value)
    each = [args[0]] * len(value) if len(args) < 2 or args[1] is ... else args
    if is_word and (width := len(get_args(args[0]))) > 1 and get_origin(args[0]) is tuple:
        # Pairs such as those of `--logit-bias 5 1.5 7 -2` are flat on the command line.
        value = [value[start : start + width] for start in range(0, len(value), width)]
        each = each[: len(value)]
    return [convert_value(hint, entry, is_word) for hint, entry in zip(each, value, strict=True)]


def _wrong_type(key: str, hint: Any, value: Any, where: str) -> ConfigError:
    entries = value if isinstance(value, list) and "dict" not in type_name(hint) else []
    wrong = next((entry for entry in entries if isinstance(entry, dict)), None)
    got = f"{value!r:.100}" if wrong is None else f"{wrong!r:.100} in it"
    is_reference = isinstance(value, str) and value.startswith("${")
    advice = "write the value itself: references to other keys are not supported"
    what = f"{key}: expected {type_name(hint)}, got {got}"
    return ConfigError(what, where=where, hint=advice if is_reference else None)


def _nearest_key(cls: type, name: str, prefix: str) -> str:
    """Find the same name further down, else the nearest one beside it, else name all."""
    siblings = [field.name for field, _ in typed_fields(cls)]
    known = [*siblings, *(setting.key for setting in fields_table(cls))]
    hint = did_you_mean(name, known, f"known here: {', '.join(siblings)}")
    return hint.replace("did you mean ", f"did you mean {prefix}")
