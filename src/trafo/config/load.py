"""Defaults < YAML file < flags -> one instance of a dataclass; and back to YAML."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trafo.config.flags import parse_flags
from trafo.errors import InputError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

T = TypeVar("T")
D = TypeVar("D", bound="DataclassInstance")


def load(
    cls: type[T],
    yaml_path: str | Path | None = None,
    flags: Sequence[str] = (),
    *,
    prog: str | None = None,
) -> T:
    """The resolved config.

    `__post_init__` checks run once, at the end: a file may be valid only together with the flags.
    """
    if yaml_path is None:
        return parse_flags(cls, flags, prog=prog)
    from trafo.config.yaml_file import draft, read_yaml  # OmegaConf takes a while to import

    base = draft(cls, read_yaml(Path(yaml_path)), str(yaml_path))
    return parse_flags(cls, flags, default=base, prog=prog)


def with_values(instance: D, values: Mapping[str, Any], where: str) -> D:
    """The same config with some values changed; `where` names their source in errors."""
    from trafo.config.yaml_file import draft

    merged = _over(_plain(instance), _plain(dict(values)))
    return _checked(draft(type(instance), merged, where))


def _checked(unchecked: D) -> D:
    """The same tree, built as usual, so that every part checks itself."""
    fields = [field.name for field in dataclasses.fields(unchecked) if field.init]
    values = {name: getattr(unchecked, name) for name in fields}
    parts = {
        name: _checked(value)
        if dataclasses.is_dataclass(value) and not isinstance(value, type)
        else value
        for name, value in values.items()
    }
    return type(unchecked)(**parts)


def _over(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    both = {name for name in base.keys() & values.keys() if isinstance(base[name], dict)}
    below = {
        name: _over(base[name], values[name]) for name in both if isinstance(values[name], dict)
    }
    return base | values | below


def to_yaml(instance: DataclassInstance) -> str:
    """Every setting as YAML, defaults included: defaults may change, a run must not."""
    from omegaconf import OmegaConf

    try:
        return OmegaConf.to_yaml(OmegaConf.create(_plain(instance)))
    except UnicodeEncodeError as error:
        what = f"the name {error.object!r} is not UTF-8, which a config must be"
        raise InputError(what, hint="rename the file or the folder") from None


def _plain(value: object) -> Any:
    """The value in types that YAML has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()  # a number of NumPy or PyTorch
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Path):
        return _escape(str(value))
    return _escape(value) if isinstance(value, str) else value


def _escape(text: str) -> str:
    """`${` would be read as an interpolation: a backslash before it, and earlier ones doubled."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
