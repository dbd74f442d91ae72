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
from typing import Any

REQUIRED = dataclasses.MISSING
"""the default of a setting that has none"""


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
    is_positional: bool = False
    """whether the command line takes it by its place, not by its flag"""
    is_path: bool = False
    """whether it names files or folders"""

    @property
    def flag(self) -> str:
        """The command-line flag: `--model.d-model`."""
        return "--" + self.key.replace("_", "-")


@cache  # reading the help from the source takes longer than everything else
def fields_table(cls: type) -> tuple[Setting, ...]:
    """All settings of the tree, in the order of the source."""
    return tuple(_walk(cls, REQUIRED, prefix=""))


def _walk(cls: type, instance: object, prefix: str) -> Iterator[Setting]:
    """`instance` is what the parent has by default, which may differ from the class's own."""
    helps, all_marks = docstrings(cls), _marks(cls)
    for field, hint in typed_fields(cls):
        key = prefix + field.name
        default = _default(field) if instance is REQUIRED else getattr(instance, field.name)
        if is_dataclass_type(hint):
            yield from _walk(hint, default, prefix=f"{key}.")
        else:
            name, help_text = type_name(hint), helps.get(field.name, "")
            marks = str(all_marks[field.name])
            is_path = "Path" in name or "PATH" in marks or "TEXT" in marks
            yield Setting(key, name, default, help_text, "Positional" in marks, is_path)


def typed_fields(cls: type) -> Iterator[tuple[dataclasses.Field[Any], Any]]:
    """The fields that can be set, each with its annotation resolved."""
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if field.init:
            yield field, hints[field.name]


def _marks(cls: type) -> dict[str, object]:
    """What fields are annotated with besides their type: tyro's `Positional`, a name in help."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {name: getattr(hint, "__metadata__", ()) for name, hint in hints.items()}


def is_dataclass_type(hint: object) -> bool:
    """Whether an annotation is a dataclass, that is, a branch of the tree."""
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)


def type_name(hint: object) -> str:
    """The annotation without the modules: `int`, `Path | None`, `'sum' | 'mean'`."""
    name = re.sub(r"\b(?:\w+\.)+", "", inspect.formatannotation(hint))
    return re.sub(r"Literal\[(.*?)\]", lambda match: match[1].replace(", ", " | "), name)


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def docstrings(cls: type) -> dict[str, str]:
    """The strings that stand below fields in the source of `cls` and of what it inherits from."""
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
