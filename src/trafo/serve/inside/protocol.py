"""Bodies of the page's own requests."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from trafo.models import CausalLM
from trafo.models.translator import Translator
from trafo.serve.errors import invalid
from trafo.serve.protocol import Body, Ids

MAX_TOKENS = 512
"""tokens of a text that is looked into: attention grows with their square"""
MAX_WRITTEN = 8192
"""tokens of a text that is scored, or continued"""
MAX_CHARACTERS = 4000
"""of a sentence to translate; a text to tokenize may have 20 times as many"""

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


def check_ids(ids: Ids, model: CausalLM | Translator, most: int, name: str) -> None:
    """Refuse no ids, more than `most`, and those outside the vocabulary."""
    if not 0 < len(ids) <= most:
        raise invalid(f"{name} has {len(ids):,} tokens; it must have 1 to {most:,}", name)
    vocab = model.head_weight.shape[0]
    if not all(0 <= i < vocab for i in ids):
        raise invalid(f"an id is outside the vocabulary of {vocab:,}", name)
