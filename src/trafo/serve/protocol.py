"""What clients send: OpenAI's fields, a few that vLLM and llama.cpp added to them, and our page's.

Types are strict, and a field that is not here is refused by its name, never ignored. A field that
is null counts as left out. Fields of OpenAI's that are not supported may say what happens anyway:
`best_of` equal to `n`, `response_format: {"type": "text"}`.

What goes back is JSON, encoded here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    WrapValidator,
    field_validator,
    model_validator,
)

from trafo.generate.beam_config import MAX_LENGTH_PENALTY

_Item = TypeVar("_Item")


def _validate_in_parts(given: Any, validate: Callable[[Any], Any]) -> Any:
    if not isinstance(given, dict):
        return validate(given)
    pairs, found = list(given.items()), dict[str, Any]()
    for start in range(0, len(pairs), 100):
        found |= validate(dict(pairs[start : start + 100]))
    return found


# One error is enough: a list of 100,000 wrong items would be refused for seconds. An object, for
# which pydantic has no `fail_fast`, is refused for its first part with mistakes.
List = Annotated[list[_Item], Field(fail_fast=True)]
ByName = Annotated[dict[str, _Item], WrapValidator(_validate_in_parts)]
Ids = List[int]
Number = Annotated[float, Field(allow_inf_nan=False)]
Penalty = Annotated[Number, Field(ge=-2, le=2)]
TextsOrIds = str | Ids | List[str] | List[Ids]


def parse_count(text: str) -> int | None:
    """Read a number in a header, an address or a key; None if it is none or has over 18 digits."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


class Strict(BaseModel):
    """No other fields, no other types."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_nulls(cls, given: Any) -> Any:
        """Also all unknown fields but the first, which is the one that is refused."""
        if not isinstance(given, dict):
            return given
        fields = {name: value for name, value in given.items() if value is not None}
        unknown = [name for name in fields if name not in cls.model_fields]
        for name in unknown[1:]:
            del fields[name]
        return fields


class Body(Strict):
    """The body of a request."""

    model: str | None = None
    """name of a served model; left out: the first one"""
    user: str | None = None
    """accepted for OpenAI's clients; nothing is kept about users"""


class StreamOptions(Strict):
    """What a stream contains besides text."""

    include_usage: bool = False


class SamplingBody(Body):
    """What completions and chats share."""

    max_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    """-1 and 0: all tokens"""
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[Number, Field(gt=0)] | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    logit_bias: ByName[Annotated[Number, Field(ge=-100, le=100)]] | None = None
    n: Annotated[int, Field(ge=1)] | None = None
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    store: bool | None = None
    metadata: ByName[str] | None = None
    """what OpenAI would keep with an answer; nothing is kept here"""


class CompletionBody(SamplingBody):
    """`POST /v1/completions`."""

    prompt: TextsOrIds
    logprobs: Annotated[int, Field(ge=0, le=100)] | None = None
    echo: bool | None = None
    best_of: int | None = None
    suffix: Literal[""] | None = None

    @field_validator("best_of")
    @classmethod
    def _refuse_more_than_n(cls, best_of: int | None, info: ValidationInfo) -> int | None:
        n = info.data.get("n") or 1
        if best_of not in (None, 1, n):
            raise ValueError(f"{best_of} is not supported, it must be equal to n, which is {n}")
        return best_of


class TextPart(Strict):
    """A part of a message; only text is supported."""

    type: Literal["text"]
    text: str


class Message(Strict):
    """One message of a chat."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | List[TextPart] | None = None
    name: str | None = None
    """of the writer; not shown to the model"""

    @model_validator(mode="after")
    def _require_content(self) -> Self:
        if self.content is None and self.role != "assistant":
            raise ValueError(f"content is missing in a message of the {self.role}")
        return self

    @property
    def text(self) -> str:
        """Return its text, parts joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content or [])


class TextFormat(Strict):
    """The only format of an answer."""

    type: Literal["text"]


class ChatBody(SamplingBody):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1, fail_fast=True)]
    max_completion_tokens: Annotated[int, Field(ge=0)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=100)] | None = None
    response_format: TextFormat | None = None


class EmbeddingBody(Body):
    """`POST /v1/embeddings`."""

    input: TextsOrIds
    encoding_format: Literal["float", "base64"] = "float"
    pooling: Literal["mean", "max", "first"] = "mean"
    """how the vectors of a text's tokens become one"""


class TranslationBody(Body):
    """`POST /v1/translations`: beam search with an encoder-decoder; by default as the run says."""

    input: str | List[str]
    beam: Annotated[int, Field(ge=1, le=64)] | None = None
    n_best: Annotated[int, Field(ge=1, le=64)] | None = None
    length_penalty: Annotated[Number, Field(ge=0, le=MAX_LENGTH_PENALTY)] | None = None


class TokenizeBody(Body):
    """`POST /tokenize`."""

    prompt: str
    add_special_tokens: bool = True
    """begin with the model's begin token, if it has one"""


class DetokenizeBody(Body):
    """`POST /detokenize`."""

    tokens: Ids


# The page's own requests

MAX_CHARACTERS = 4000
"""of a sentence to translate; a text to tokenize may have 20 times as many"""

ShortText = Annotated[str, Field(max_length=MAX_CHARACTERS)]
LayerNumber = Annotated[int, Field(ge=0)]


class TextBody(Body):
    """A text; a translation model takes it as a sentence of its source language."""

    text: Annotated[str, Field(max_length=20 * MAX_CHARACTERS)]


class IdsBody(Body):
    """A text as ids."""

    ids: Ids


class AttentionBody(IdsBody):
    """One layer's attention on a text."""

    layer: LayerNumber


class MergesBody(Body):
    """One token; of a translation model, of its source or target language."""

    id: int
    side: Literal["source", "target"] = "source"


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
    layer: LayerNumber


# JSON that goes back

Json = dict[str, Any]
_DEPTH = 5
"""levels of an answer that are taken apart: down to the log-probabilities of one token"""
_TOGETHER = 1000
"""numbers or strings of a list that are encoded at once"""
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def encode_event(content: Json) -> bytes:
    """Encode a server-sent event, all of it at once."""
    return b"data: " + _encode(content).encode() + b"\n\n"


def encode_json(content: Json) -> bytes:
    """Encode JSON as UTF-8, in small pieces: other threads wait while a piece is encoded.

    An iterator is a list whose items are made one by one. A million objects at once would stop all
    threads while Python looks for garbage among them.
    """
    return "".join(_pieces(content, _DEPTH)).encode()


def _pieces(value: Any, depth: int) -> Iterator[str]:
    if depth and isinstance(value, dict):
        for place, (name, each) in enumerate(value.items()):
            yield ("," if place else "{") + _encode(name) + ":"
            yield from _pieces(each, depth - 1)
        yield "}" if value else "{}"
    elif isinstance(value, Iterator) or (
        depth and isinstance(value, list) and value and isinstance(value[0], dict)
    ):
        yield "["
        for place, each in enumerate(value):
            yield "," if place else ""
            yield from _pieces(each, depth - 1)
        yield "]"
    elif depth and isinstance(value, list):
        yield "["
        for start in range(0, len(value), _TOGETHER):
            yield ("," if start else "") + _encode(value[start : start + _TOGETHER])[1:-1]
        yield "]"
    else:
        yield _encode(value)
