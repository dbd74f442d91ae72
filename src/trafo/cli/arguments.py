"""Arguments that several verbs share, as the command line names them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

# Text, not `Path`: a URL such as s3://bucket/tok would lose a slash.
TokenizerPath = Annotated[Positional[str], arg(metavar="TOKENIZER")]
Place = Annotated[str, arg(metavar="PATH")]
OptionalPlace = Annotated[str | None, arg(metavar="PATH")]
TextPaths = Annotated[
    Positional[tuple[str, ...]], arg(metavar="TEXT ...", help_behavior_hint="(required)")
]
Texts = Annotated[Positional[tuple[str, ...]], arg(metavar="TEXT ...")]
Paths = Annotated[tuple[str, ...], arg(metavar="PATH ...")]
OptionalPath = Annotated[Path | None, arg(metavar="PATH")]
OptionalString = Annotated[str | None, arg(metavar="STR")]
OptionalInt = Annotated[int | None, arg(metavar="INT")]
Threads = Annotated[int | None, arg(metavar="INT")]
Strings = Annotated[tuple[str, ...], arg(metavar="STR ...")]

Errors = Literal["strict", "replace"]
SpecialPolicy = Literal["allow", "ignore", "refuse"]
