"""Defaults < YAML file < flags -> one instance of a dataclass; and back to YAML."""

from __future__ import annotations

import dataclasses
import enum
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, TypeVar

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

    changed = merged(_escaped(instance), _escaped(dict(values)))
    return _checked(draft(type(instance), changed, where))


def _checked(unchecked: D) -> D:
    """The same tree, built as usual, so that every part checks itself."""
    values = {
        name: _checked(value) if _is_instance(value) else value
        for name, value in _values(unchecked).items()
    }
    return type(unchecked)(**values)


def merged(base: dict[str, Any], values: dict[str, Any]) -> dict[str, Any]:
    """Both trees of dictionaries; where they meet, `values` wins."""
    both = {name for name in base.keys() & values.keys() if isinstance(base[name], dict)}
    below = {
        name: merged(base[name], values[name]) for name in both if isinstance(values[name], dict)
    }
    return base | values | below


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`{"model.d_ff": 8}` as `{"model": {"d_ff": 8}}`."""
    tree: dict[str, Any] = {}
    for key, value in settings.items():
        value = nested(value) if isinstance(value, Mapping) else value
        for name in reversed(str(key).split(".")):
            value = {name: value}
        tree = merged(tree, value)
    return tree


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """`{"model": {"d_ff": 8}}` as `{"model.d_ff": 8}`."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        is_branch = isinstance(value, Mapping)
        flat |= flatten(value, f"{prefix}{name}.") if is_branch else {prefix + name: value}
    return flat


def _is_instance(value: object) -> TypeGuard[DataclassInstance]:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _values(instance: DataclassInstance) -> dict[str, Any]:
    fields = [field.name for field in dataclasses.fields(instance) if field.init]
    return {name: getattr(instance, name) for name in fields}


def to_yaml(instance: DataclassInstance) -> str:
    """Every setting as YAML, defaults included: defaults may change, a run must not."""
    from omegaconf import OmegaConf

    try:
        return OmegaConf.to_yaml(OmegaConf.create(_escaped(instance)))
    except UnicodeEncodeError as error:
        what = f"the name {error.object!r} is not UTF-8, which a config must be"
        raise InputError(what, hint="rename the file or the folder") from None


def to_tree(value: object) -> Any:
    """A config, or any value of one, in types that JSON and YAML have."""
    if _is_instance(value):
        value = _values(value)
    if isinstance(value, dict):
        return {key: to_tree(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [to_tree(inner) for inner in value]
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        return value.item()  # a number of NumPy or PyTorch
    if isinstance(value, enum.Enum):
        return value.name
    return str(value) if isinstance(value, Path) else value


def _escaped(value: object) -> Any:
    """`${` would be read as an interpolation: a backslash before it, and earlier ones doubled."""
    value = to_tree(value)
    if isinstance(value, dict):
        return {key: _escaped(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_escaped(inner) for inner in value]
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", value) if isinstance(value, str) else value
