"""OpenAI's objects for completions and chats, whole and in chunks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from trafo.generate.request import FinishReason
from trafo.generate.sampling import Token

Json = dict[str, Any]

_REASONS = {"stop": "stop", "end": "stop", "length": "length", None: None}


@dataclass
class Choice:
    """One completion as it grows."""

    index: int
    text: str = ""
    tokens: list[Token] = field(default_factory=list)
    finish_reason: FinishReason | None = None


class _Object:
    """The object around the choices of an answer, or of a chunk."""

    prefix: str
    kind: str
    chunk_kind: str

    def __init__(self, model: str, vocab: Mapping[int, bytes], with_logprobs: bool) -> None:
        self.vocab, self.with_logprobs = vocab, with_logprobs
        self._id, self._created = f"{self.prefix}-{token_hex(12)}", int(time.time())
        self._model = model

    def envelope(self, choices: list[Json], *, chunk: bool = False) -> Json:
        """With these choices."""
        return {
            "id": self._id,
            "object": self.chunk_kind if chunk else self.kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }


class CompletionFormat(_Object):
    """`text_completion` objects."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

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
            "token_logprobs": [_finite(token.logprob) for token in tokens],
            "top_logprobs": [
                {token_text(self.vocab, i): _finite(logprob) for i, logprob in token.alternatives}
                for token in tokens
            ],
            "text_offset": offsets,
            "token_ids": [token.id for token in tokens],
        }


class ChatFormat(_Object):
    """`chat.completion` objects."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

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
            "logprobs": self._logprobs(choice.tokens, iter),
            "finish_reason": _REASONS[choice.finish_reason],
        }

    def _logprobs(
        self, tokens: Sequence[Token], collect: Callable[[Iterator[Json]], Any] = list
    ) -> Json | None:
        if not self.with_logprobs:
            return None
        entries = (
            self._entry(token.id, token.logprob)
            | {"top_logprobs": [self._entry(*pair) for pair in token.alternatives]}
            for token in tokens
        )
        return {"content": collect(entries), "refusal": None}

    def _entry(self, token_id: int, logprob: float | None) -> Json:
        return {
            "token": token_text(self.vocab, token_id),
            "logprob": _finite(logprob),
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


def _finite(logprob: float | None) -> float | None:
    """JSON has no infinity: OpenAI writes -9999 for an impossible token."""
    return logprob if logprob is None else max(logprob, -9999.0)


def event(content: Json) -> bytes:
    """A server-sent event, all of it at once."""
    return b"data: " + _encode(content).encode() + b"\n\n"


def encode_json(content: Json) -> bytes:
    """Encode JSON as UTF-8, in small pieces: other threads wait while a piece is encoded.

    An iterator is a list whose items are made one by one. A million objects at once would stop all
    threads while Python looks for garbage among them.
    """
    return "".join(_pieces(content, _DEPTH)).encode()


_DEPTH = 5
"""levels of an answer that are taken apart: down to the log-probabilities of one token"""
_TOGETHER = 1000
"""numbers or strings of a list that are encoded at once"""
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


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
