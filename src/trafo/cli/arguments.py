"""Arguments that several verbs share, as the command line names them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from tyro.conf import Positional, arg

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")

# Text, not `Path`: a URL such as s3://bucket/tok would lose a slash.
TokenizerPath = Annotated[Positional[str], arg(metavar="TOKENIZER")]
Place = Annotated[str, arg(metavar="PATH")]
OptionalPlace = Annotated[str | None, arg(metavar="PATH")]
TextPaths = Annotated[
    Positional[tuple[str, ...]], arg(metavar="TEXT ...", help_behavior_hint="(required)")
]
RunPath = Annotated[Positional[Path], arg(metavar="RUN")]
LATEST = Path("runs/latest")
"""the run that was trained last"""
Texts = Annotated[Positional[tuple[str, ...]], arg(metavar="TEXT ...")]
Paths = Annotated[tuple[str, ...], arg(metavar="PATH ...")]
OptionalPath = Annotated[Path | None, arg(metavar="PATH")]
OptionalString = Annotated[str | None, arg(metavar="STR")]
OptionalInt = Annotated[int | None, arg(metavar="INT")]
OptionalFloat = Annotated[float | None, arg(metavar="FLOAT")]
Strings = Annotated[tuple[str, ...], arg(metavar="STR ...")]

Errors = Literal["strict", "replace"]
SpecialPolicy = Literal["allow", "ignore", "refuse"]


def only(cls: type[D], options: D) -> D:
    """The settings of `cls` alone, of options that extend it."""
    return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})
