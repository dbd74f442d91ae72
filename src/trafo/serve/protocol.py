"""What clients send: OpenAI's fields, and a few that vLLM and llama.cpp added to them.

Types are strict, and a field that is not here is refused by its name, never ignored.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Ids = list[int]
Number = Annotated[float, Field(allow_inf_nan=False)]


class Body(BaseModel):
    """The body of a request."""

    model_config = ConfigDict(extra="forbid", strict=True)

    model: str | None = None
    """name of a served model; left out: the first one"""
    user: str | None = None


class StreamOptions(BaseModel):
    """What a stream contains besides text."""

    model_config = ConfigDict(extra="forbid", strict=True)

    include_usage: bool = False


class Sampling(Body):
    """What completions and chats share."""

    max_tokens: Annotated[int, Field(ge=0)] | None = None
    temperature: Annotated[Number, Field(ge=0, le=2)] | None = None
    top_p: Annotated[Number, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=-1)] | None = None
    min_p: Annotated[Number, Field(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[Number, Field(gt=0)] | None = None
    n: Annotated[int, Field(ge=1, le=128)] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None


class CompletionBody(Sampling):
    """`POST /v1/completions`."""

    prompt: str | Ids | list[str] | list[Ids]
    logprobs: Annotated[int, Field(ge=0)] | None = None


class TextPart(BaseModel):
    """A part of a message; only text is supported."""

    model_config = ConfigDict(extra="forbid", strict=True)

    type: Literal["text"]
    text: str


class Message(BaseModel):
    """One message of a chat."""

    model_config = ConfigDict(extra="forbid", strict=True)

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[TextPart]
    name: str | None = None

    @property
    def text(self) -> str:
        """Its text, parts joined."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content)


class ChatBody(Sampling):
    """`POST /v1/chat/completions`."""

    messages: Annotated[list[Message], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=0)] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Field(ge=0)] | None = None


class TokenizeBody(Body):
    """`POST /tokenize`."""

    prompt: str
    add_special_tokens: bool = True
    """begin with the model's begin token, if it has one"""


class DetokenizeBody(Body):
    """`POST /detokenize`."""

    tokens: Ids
