"""Defaults < YAML file < flags -> one instance of a dataclass."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from trafo.config.flags import parse_flags

T = TypeVar("T")


def load(
    cls: type[T],
    yaml_path: str | Path | None = None,
    flags: Sequence[str] = (),
    *,
    prog: str | None = None,
) -> T:
    """The resolved tree. What the dataclasses check in `__post_init__` is checked once, at the end:
    a YAML file that makes sense only together with the flags is fine.
    """
    if yaml_path is None:
        return parse_flags(cls, flags, prog=prog)
    from trafo.config.yaml_file import draft_from_yaml  # OmegaConf takes a while to import

    return parse_flags(cls, flags, default=draft_from_yaml(cls, Path(yaml_path)), prog=prog)
