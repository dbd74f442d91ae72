"""The settings of a tree of dataclasses: every key with its type, default and help."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import textwrap
import typing
from collections.abc import Iterator
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

T = TypeVar("T")

REQUIRED = dataclasses.MISSING
"""the default of a setting that has none"""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Argument:
    """How the command line takes and shows a field: `Annotated[str, Argument(metavar="PATH")]`."""

    metavar: str = ""
    """what help shows in place of a value; empty: the type"""
    is_positional: bool = False
    """whether it is taken by its place, not by its flag"""
    aliases: tuple[str, ...] = ()
    """shorter flags"""


Positional = Annotated[T, Argument(is_positional=True)]
"""A field that the command line takes by its place."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """One leaf of the tree."""

    key: str
    """dotted key, such as `model.d_model`"""
    type: str
    """type, as in an annotation"""
    default: object
    """default value, or REQUIRED"""
    help: str
    """help text: the string below the field"""
    hint: Any = dataclasses.field(default=None, repr=False, compare=False)
    """the annotation itself"""
    metavar: str = dataclasses.field(default="", compare=False)
    """what help shows in place of a value"""
    is_positional: bool = False
    """whether the command line takes it by its place, not by its flag"""
    aliases: tuple[str, ...] = ()
    """shorter flags"""

    @property
    def flag(self) -> str:
        """The command-line flag: `--model.d-model`."""
        return "--" + self.key.replace("_", "-")

    @property
    def no_flag(self) -> str:
        """What turns a switch off: `--model.no-tied-head`."""
        parent, dot, name = self.flag.removeprefix("--").rpartition(".")
        return f"--{parent}{dot}no-{name}"

    @property
    def label(self) -> str:
        """What messages call it: the flag, or what help shows for a positional argument."""
        return self.metavar if self.is_positional else self.flag

    @property
    def is_path(self) -> bool:
        """Whether it names files or folders."""
        return "Path" in self.type or "PATH" in self.metavar or "TEXT" in self.metavar

    @property
    def is_switch(self) -> bool:
        """Whether it is on or off."""
        return self.type == "bool"


@cache  # reading the help from the source takes longer than everything else
def fields_table(cls: type) -> tuple[Setting, ...]:
    """List all settings of the tree, in the order of the source."""
    return tuple(_walk(cls, REQUIRED, prefix=""))


def _walk(cls: type, instance: object, prefix: str) -> Iterator[Setting]:
    """`instance` is what the parent has by default, which may differ from the class's own."""
    helps, extras = docstrings(cls), typing.get_type_hints(cls, include_extras=True)
    for field, hint in typed_fields(cls):
        key = prefix + field.name
        default = default_of(field) if instance is REQUIRED else getattr(instance, field.name)
        if is_dataclass_type(hint):
            yield from _walk(hint, default, prefix=f"{key}.")
            continue
        marks = getattr(extras[field.name], "__metadata__", ())
        marks = [mark for mark in marks if isinstance(mark, Argument)]
        yield Setting(
            key,
            type_name(hint),
            default,
            helps.get(field.name, ""),
            hint,
            next((m.metavar for m in reversed(marks) if m.metavar), _metavar(hint)),
            any(mark.is_positional for mark in marks),
            tuple(alias for mark in marks for alias in mark.aliases),
        )


@cache
def typed_fields(cls: type) -> tuple[tuple[dataclasses.Field[Any], Any], ...]:
    """List the fields that can be set, each with its annotation resolved."""
    hints = typing.get_type_hints(cls)
    return tuple((field, hints[field.name]) for field in dataclasses.fields(cls) if field.init)


def is_dataclass_type(hint: object) -> bool:
    """Whether an annotation is a dataclass, that is, a branch of the tree."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def type_name(hint: object) -> str:
    """Write the annotation without the modules: `int`, `Path | None`, `'sum' | 'mean'`."""
    name = re.sub(r"\b(?:\w+\.)+", "", inspect.formatannotation(hint))
    name = re.sub(r"Literal\[(.*?)\]", lambda match: match[1].replace(", ", " | "), name)
    return re.sub(r"Optional\[(.*)\]", r"\1 | None", name)


def union_of(hint: object) -> tuple[Any, ...]:
    """List the types that a value may have: of `int | None` both, else the one."""
    return get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)


def _metavar(hint: object) -> str:
    """`INT`, `{pre,post}`, `PATH ...`, `FLOAT FLOAT`."""
    parts = [part for part in union_of(hint) if part is not NoneType]
    if len(parts) > 1:
        return "|".join(map(_metavar, parts))
    (part,), args = parts, get_args(parts[0])
    if get_origin(part) is Literal:
        return f"{{{','.join(map(str, args))}}}"
    if get_origin(part) in (list, tuple):
        return " ".join("..." if arg is ... else _metavar(arg) for arg in args)
    return type_name(part).upper()


def default_of(field: dataclasses.Field[Any]) -> object:
    """Make the field's default, or return REQUIRED."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def docstrings(cls: type) -> dict[str, str]:
    """Read the strings below the fields in the source of `cls` and of what it inherits from."""
    found: dict[str, str] = {}
    for ancestor in reversed(cls.__mro__):
        if dataclasses.is_dataclass(ancestor):
            found |= dict(_docstrings_in_source(ancestor))
    return found


def _docstrings_in_source(cls: type) -> Iterator[tuple[str, str]]:
    try:
        source = textwrap.dedent(inspect.getsource(cls))
    except (OSError, TypeError):  # made at a prompt or at run time: there is no file to read
        return
    definition = ast.parse(source).body[0]
    assert isinstance(definition, ast.ClassDef)
    for field, below in zip(definition.body, definition.body[1:], strict=False):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(ast.Constant(str(text))):
                yield name, inspect.cleandoc(text)
