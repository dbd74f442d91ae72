"""The listing of settings that the documentation is made from."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from trafo.config import Setting, fields_table
from trafo.config.fields import REQUIRED, type_name


@dataclass
class Base:
    seed: int = 0
    """where randomness starts"""


@dataclass
class Model:
    width: int = 512
    """how wide,
    in numbers"""
    kind: Literal["a", "b"] = "a"


@dataclass
class Root(Base):
    path: Path = field(kw_only=True)
    """where to"""
    name: str | None = None
    """what to call it"""
    tags: list[str] = field(default_factory=list)
    model: Model = field(default_factory=lambda: Model(width=64))
    computed: int = field(default=3, init=False)


def test_every_setting_with_type_default_and_help():
    assert fields_table(Root) == (
        Setting("seed", "int", 0, "where randomness starts"),
        Setting("path", "Path", REQUIRED, "where to"),
        Setting("name", "str | None", None, "what to call it"),
        Setting("tags", "list[str]", [], ""),
        Setting("model.width", "int", 64, "how wide,\nin numbers"),
        Setting("model.kind", "'a' | 'b'", "a", ""),
    )


def test_flags_are_in_kebab_case():
    assert Setting("model.d_model", "int", 1, "").flag == "--model.d-model"


def test_type_names_leave_modules_out():
    assert type_name(dict[str, Path | None]) == "dict[str, Path | None]"
    assert type_name(float) == "float"
