"""Pieces from the engine -> one JSON answer, or a stream of server-sent events, as OpenAI's are."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trafo.generate.request import FinishReason, Piece
from trafo.generate.sampling import Token
from trafo.serve.errors import ApiError
from trafo.serve.metrics import AnswerMetrics, Metrics
from trafo.serve.protocol import Json, encode_event
from trafo.serve.service import json_response, run_apart
from trafo.serve.worker import Subscription

_REASONS = {"stop": "stop", "end": "stop", "length": "length", None: None}


@dataclass
class GrowingChoice:
    """One completion as it grows, from its prompt if that is echoed."""

    index: int
    text: str = ""
    tokens: list[Token] = field(default_factory=list)
    finish_reason: FinishReason | None = None


class _Envelope:
    """The object around the choices of an answer, or of a chunk."""

    prefix: str
    kind: str
    chunk_kind: str

    def __init__(self, model: str, vocab: Mapping[int, bytes], with_logprobs: bool) -> None:
        self.vocab, self.with_logprobs = vocab, with_logprobs
        self._id, self._created = f"{self.prefix}-{token_hex(12)}", int(time.time())
        self._model = model

    def envelope(self, choices: list[Json], *, chunk: bool = False) -> Json:
        """Return the object with these choices."""
        return {
            "id": self._id,
            "object": self.chunk_kind if chunk else self.kind,
            "created": self._created,
            "model": self._model,
            "choices": choices,
        }


class CompletionFormat(_Envelope):
    """`text_completion` objects."""

    prefix, kind, chunk_kind = "cmpl", "text_completion", "text_completion"

    def first_chunk(self, index: int) -> Json | None:
        """Return nothing."""
        return None

    def next_chunk(
        self,
        choice: GrowingChoice,
        text: str,
        tokens: Sequence[Token],
        reason: FinishReason | None = None,
    ) -> Json:
        """Return what is new of a choice."""
        offset = len(choice.text) - len(text)
        return {
            "index": choice.index,
            "text": text,
            "logprobs": self._logprobs(tokens, offset) if self.with_logprobs else None,
            "finish_reason": _REASONS[reason],
        }

    def whole(self, choice: GrowingChoice) -> Json:
        """Return a finished choice."""
        return self.next_chunk(choice, choice.text, choice.tokens, choice.finish_reason)

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


class ChatFormat(_Envelope):
    """`chat.completion` objects."""

    prefix, kind, chunk_kind = "chatcmpl", "chat.completion", "chat.completion.chunk"

    def first_chunk(self, index: int) -> Json | None:
        """Return the role."""
        delta = {"role": "assistant", "content": ""}
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": None}

    def next_chunk(
        self,
        choice: GrowingChoice,
        text: str,
        tokens: Sequence[Token],
        reason: FinishReason | None = None,
    ) -> Json:
        """Return what is new of a choice."""
        return {
            "index": choice.index,
            "delta": {"content": text} if text or tokens else {},
            "logprobs": self._logprobs(tokens, list),
            "finish_reason": _REASONS[reason],
        }

    def whole(self, choice: GrowingChoice) -> Json:
        """Return a finished choice."""
        return {
            "index": choice.index,
            "message": {"role": "assistant", "content": choice.text, "refusal": None},
            "logprobs": self._logprobs(choice.tokens, iter),
            "finish_reason": _REASONS[choice.finish_reason],
        }

    def _logprobs(
        self, tokens: Sequence[Token], collect: Callable[[Iterator[Json]], Any]
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


AnswerFormat = CompletionFormat | ChatFormat


def token_text(vocab: Mapping[int, bytes], token_id: int) -> str:
    """Return the text of a token, parts of characters as OpenAI writes them: `bytes:\\xe2\\x82`."""
    raw = vocab.get(token_id, b"")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)


def _finite(logprob: float | None) -> float | None:
    """JSON has no infinity: OpenAI writes -9999 for an impossible token."""
    return logprob if logprob is None else max(logprob, -9999.0)


class Answer:
    """Joins pieces into choices: choice i * n + j is sample j of prompt i."""

    def __init__(
        self,
        subscription: Subscription,
        form: AnswerFormat,
        metrics: Metrics,
        echoes: Sequence[tuple[str, Sequence[Token]]] = (),
    ) -> None:
        requests = subscription.requests
        self.subscription = subscription
        self._form = form
        self._num_samples = requests[0].config.num_samples
        self._num_logprobs = 1 + (requests[0].config.logprobs or 0)
        self._has_echo = bool(echoes)
        starts = echoes or [("", ())] * len(requests)
        samples = [start for start in starts for _ in range(self._num_samples)]
        self._choices = [
            GrowingChoice(index, text, list(tokens)) for index, (text, tokens) in enumerate(samples)
        ]
        self._metrics = AnswerMetrics(metrics, sum(len(request.prompt) for request in requests))

    async def whole(self) -> Response:
        """Return one answer, when everything is done."""
        with closing(self.subscription):
            try:
                async for batch in self.subscription.batches():
                    for number, piece in batch:
                        self._add(number, piece)
            finally:
                self._metrics.end()
            return await json_response(self._content, self._size())

    def _content(self) -> Json:
        choices = [self._form.whole(choice) for choice in self._choices]
        return self._form.envelope(choices) | {"usage": self._metrics.usage()}

    def _size(self) -> int:
        return self._num_logprobs * sum(len(choice.tokens) for choice in self._choices)

    async def events(self, include_usage: bool) -> AsyncIterator[bytes]:
        """Yield the stream in parts of whole events, up to `[DONE]`."""
        usage: Json = {"usage": None} if include_usage else {}

        def encode(contents: Iterator[Json]) -> bytes:
            chunks = (self._form.envelope([content], chunk=True) for content in contents)
            return b"".join(encode_event(chunk | usage) for chunk in chunks)

        yield await run_apart(lambda: encode(self._first_chunks()), self._size())
        try:
            async for batch in self.subscription.batches():
                yield encode(chunk for each in batch for chunk in self._next_chunks(*each))
        except ApiError as error:
            yield encode_event(error.content())
            return
        finally:
            self._metrics.end()
        if include_usage:
            end = self._form.envelope([], chunk=True) | {"usage": self._metrics.usage()}
            yield encode_event(end)
        yield b"data: [DONE]\n\n"

    def _add(self, number: int, piece: Piece) -> GrowingChoice:
        choice = self._choices[number * self._num_samples + piece.row]
        choice.text += piece.text
        if piece.token is not None:
            choice.tokens.append(piece.token)
            self._metrics.count_token()
        choice.finish_reason = piece.finish_reason
        return choice

    def _first_chunks(self) -> Iterator[Json]:
        for choice in self._choices:
            content = self._form.first_chunk(choice.index)
            if content is not None:
                yield content
        for choice in self._choices if self._has_echo else ():
            yield self._form.next_chunk(choice, choice.text, choice.tokens)

    def _next_chunks(self, number: int, piece: Piece) -> Iterator[Json]:
        """Yield nothing if there is no new text: half a character, or what may be a stop string."""
        choice = self._add(number, piece)
        tokens = [piece.token] if piece.token is not None and self._form.with_logprobs else []
        if piece.text or tokens:
            yield self._form.next_chunk(choice, piece.text, tokens)
        if piece.finish_reason:
            yield self._form.next_chunk(choice, "", [], piece.finish_reason)


class EventStream(Response):
    """Server-sent events."""

    media_type = "text/event-stream"

    def __init__(self, answer: Answer, include_usage: bool) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._answer, self._include_usage = answer, include_usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        with closing(self._answer.subscription):
            await send(start)
            async for part in self._answer.events(self._include_usage):
                if part:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
