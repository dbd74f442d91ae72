"""How an answer is written: OpenAI's objects for completions and for chats, whole and in chunks."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from trafo.generate.request import FinishReason
from trafo.generate.sampling import Token

Json = dict[str, Any]

_REASONS = {"stop": "stop", "end": "stop", "length": "length", None: None}


@dataclass
class Usage:
    """Tokens read and written."""

    prompt_tokens: int
    completion_tokens: int = 0

    def content(self) -> Json:
        """As OpenAI writes it."""
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
        }


@dataclass
class Choice:
    """One completion as it grows."""

    index: int
    text: str = ""
    tokens: list[Token] = field(default_factory=list)
    finish_reason: FinishReason | None = None


@dataclass
class CompletionFormat:
    """`text_completion` objects."""

    model: str
    vocab: Mapping[int, bytes]
    with_logprobs: bool
    id: str = field(default_factory=lambda: f"cmpl-{token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    kind = chunk_kind = "text_completion"

    def opening(self, index: int) -> Json | None:
        """The first chunk of a choice: none."""
        return None

    def delta(
        self, choice: Choice, text: str, tokens: Sequence[Token], reason: FinishReason | None
    ) -> Json:
        """A chunk: what is new of a choice."""
        offset = len(choice.text) - len(text)
        return {
            "index": choice.index,
            "text": text,
            "logprobs": self._logprobs(tokens, offset) if self.with_logprobs else None,
            "finish_reason": _REASONS[reason],
        }

    def whole(self, choice: Choice) -> Json:
        """A finished choice."""
        return self.delta(choice, choice.text, choice.tokens, choice.finish_reason)

    def _logprobs(self, tokens: Sequence[Token], offset: int) -> Json:
        texts = [token_text(self.vocab, token.id) for token in tokens]
        offsets = []
        for text in texts:
            offsets.append(offset)
            offset += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [
                {token_text(self.vocab, i): logprob for i, logprob in token.alternatives}
                for token in tokens
            ],
            "text_offset": offsets,
            "token_ids": [token.id for token in tokens],
        }


@dataclass
class ChatFormat:
    """`chat.completion` objects."""

    model: str
    vocab: Mapping[int, bytes]
    with_logprobs: bool
    id: str = field(default_factory=lambda: f"chatcmpl-{token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    kind, chunk_kind = "chat.completion", "chat.completion.chunk"

    def opening(self, index: int) -> Json | None:
        """The first chunk of a choice: the role."""
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def delta(
        self, choice: Choice, text: str, tokens: Sequence[Token], reason: FinishReason | None
    ) -> Json:
        """A chunk: what is new of a choice."""
        return {
            "index": choice.index,
            "delta": {"content": text} if text or tokens else {},
            "logprobs": self._logprobs(tokens),
            "finish_reason": _REASONS[reason],
        }

    def whole(self, choice: Choice) -> Json:
        """A finished choice."""
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": self._logprobs(choice.tokens),
            "finish_reason": _REASONS[choice.finish_reason],
        }

    def _logprobs(self, tokens: Sequence[Token]) -> Json | None:
        if not self.with_logprobs:
            return None
        content = [
            self._entry(token.id, token.logprob)
            | {"top_logprobs": [self._entry(*pair) for pair in token.alternatives]}
            for token in tokens
        ]
        return {"content": content, "refusal": None}

    def _entry(self, token_id: int, logprob: float | None) -> Json:
        return {
            "token": token_text(self.vocab, token_id),
            "logprob": logprob,
            "bytes": list(self.vocab.get(token_id, b"")),
            "id": token_id,
        }


Format = CompletionFormat | ChatFormat


def token_text(vocab: Mapping[int, bytes], token_id: int) -> str:
    """The text of a token; parts of characters are written as OpenAI does: `bytes:\\xe2\\x82`."""
    raw = vocab.get(token_id, b"")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def envelope(form: Format, choices: list[Json], *, chunk: bool = False) -> Json:
    """What is around the choices."""
    return {
        "id": form.id,
        "object": form.chunk_kind if chunk else form.kind,
        "created": form.created,
        "model": form.model,
        "choices": choices,
    }
