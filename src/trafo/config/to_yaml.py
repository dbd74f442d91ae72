"""A resolved tree -> YAML that `load` turns into the same tree again."""

from __future__ import annotations

import dataclasses
import enum
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def to_yaml(instance: DataclassInstance) -> str:
    """Every setting of the tree, the defaults included: defaults may change, a run must not."""
    from omegaconf import OmegaConf

    return OmegaConf.to_yaml(OmegaConf.create(_plain(instance)))


def _plain(value: object) -> Any:
    """The value in words that YAML has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = [field.name for field in dataclasses.fields(value) if field.init]
        return {name: _plain(getattr(value, name)) for name in fields}
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    if isinstance(value, enum.Enum):
        return value.name
    if isinstance(value, Path):
        return _escape(str(value))
    return _escape(value) if isinstance(value, str) else value


def _escape(text: str) -> str:
    """`${` would be read as an interpolation: a backslash before it, and earlier ones doubled."""
    return re.sub(r"(\\*)\$\{", r"\1\1\\${", text)
