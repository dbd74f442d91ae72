"""Bodies of the page's own requests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trafo.serve.errors import ApiError
from trafo.serve.models import LanguageModel
from trafo.serve.protocol import Body, Ids

MAX_TOKENS = 512
"""tokens of a text that is looked into: attention grows with their square"""
MAX_WRITTEN = 8192
"""tokens of a text that is scored, or continued"""
MAX_CHARACTERS = 4000
"""of a sentence to translate, or a text to show as tokens while it is typed"""

Place = Annotated[int, Field(ge=0)]
ShortText = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Side = Literal["source", "target"]


class TextBody(Body):
    """A text; a translation model takes it as a sentence of its source language."""

    text: Annotated[str, Field(max_length=20 * MAX_CHARACTERS)]


class IdsBody(Body):
    """A text as ids."""

    ids: Ids


class AttentionBody(IdsBody):
    """One layer's attention on a text."""

    layer: Place


class MergesBody(Body):
    """One token; of a translation model, of its source or target language."""

    id: int
    side: Side = "source"


class BeamBody(Body):
    """A sentence to translate."""

    sentence: ShortText
    beam: Annotated[int, Field(ge=1, le=16)] = 5


class TranslationLayersBody(Body):
    """A sentence and the ids of its translation."""

    sentence: ShortText
    target: Ids


class TranslationAttentionBody(TranslationLayersBody):
    """One layer's attention on them."""

    kind: Literal["cross", "encoder", "decoder"] = "cross"
    layer: Place


def check_ids(ids: Ids, served: LanguageModel, most: int) -> None:
    """Refuse ids that the model does not know, or too many of them."""
    check_places(ids, most, served.bundle.model.head_weight.shape[0], "ids")


def check_places(ids: Ids, most: int, vocab: int, name: str) -> None:
    """Refuse no ids, more than `most`, and those outside the vocabulary."""
    if not 0 < len(ids) <= most:
        what = f"{name} has {len(ids):,} tokens; it must have 1 to {most:,}"
        raise ApiError(400, what, param=name, code="invalid_value")
    if not all(0 <= i < vocab for i in ids):
        what = f"an id is outside the vocabulary of {vocab:,}"
        raise ApiError(400, what, param=name, code="invalid_value")
