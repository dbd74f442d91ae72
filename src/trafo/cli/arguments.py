"""Arguments that several verbs share, as the command line names them."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TypeVar

from trafo.config import Argument, Positional

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

D = TypeVar("D", bound="DataclassInstance")

# Text, not `Path`: a URL such as s3://bucket/tok would lose a slash.
TokenizerPath = Annotated[Positional[str], Argument(metavar="TOKENIZER")]
Place = Annotated[str, Argument(metavar="PATH")]
OptionalPlace = Annotated[str | None, Argument(metavar="PATH")]
RunPath = Annotated[Positional[Path], Argument(metavar="RUN")]
LATEST = Path("runs/latest")
"""the run that was trained last"""
Texts = Annotated[Positional[tuple[str, ...]], Argument(metavar="TEXT ...")]
Paths = Annotated[tuple[str, ...], Argument(metavar="PATH ...")]

Errors = Literal["strict", "replace"]
SpecialPolicy = Literal["allow", "ignore", "refuse"]


def only(cls: type[D], options: D) -> D:
    """The settings of `cls` alone, of options that extend it."""
    return cls(**{field.name: getattr(options, field.name) for field in fields(cls)})
