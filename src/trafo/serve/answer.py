"""Pieces from the engine -> one JSON answer, or a stream of server-sent events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from trafo.generate.request import Piece
from trafo.generate.sampling import Token
from trafo.serve.errors import ApiError
from trafo.serve.formats import Choice, Format, Json, event
from trafo.serve.metrics import Metrics, Watch
from trafo.serve.service import json_response, run_apart
from trafo.serve.worker import Subscription


@dataclass(frozen=True)
class Echo:
    """A prompt that is part of the answer."""

    text: str
    tokens: Sequence[Token] = ()


class Answer:
    """Joins pieces into choices; choice i * n + j is sample j of prompt i."""

    def __init__(
        self,
        subscription: Subscription,
        form: Format,
        metrics: Metrics,
        echoes: Sequence[Echo] = (),
    ) -> None:
        requests = subscription.requests
        self.form = form
        self.subscription = subscription
        self._per_prompt = requests[0].config.num_samples
        self._num_logprobs = 1 + (requests[0].config.logprobs or 0)
        self._choices = [Choice(index) for index in range(self._per_prompt * len(requests))]
        self._echoes = echoes
        self._watch = Watch(metrics, sum(len(request.prompt) for request in requests))

    async def whole(self) -> Response:
        """One answer, when everything is done."""
        with closing(self.subscription):
            try:
                for choice, echo in self._echoed():
                    choice.tokens += echo.tokens
                async for batch in self.subscription.batches():
                    for number, piece in batch:
                        self._add(number, piece)
            finally:
                self._watch.end()
            num_tokens = sum(len(choice.tokens) for choice in self._choices)
            return await json_response(self._content, num_tokens * self._num_logprobs)

    def _content(self) -> Json:
        choices = [self.form.whole(choice) for choice in self._choices]
        return self.form.envelope(choices) | {"usage": self._watch.usage()}

    async def events(self, include_usage: bool) -> AsyncIterator[bytes]:
        """The stream in parts, each of whole events; `[DONE]` is the last."""
        usage: Json = {"usage": None} if include_usage else {}

        def opening() -> bytes:
            return b"".join(event(self._chunk(content) | usage) for content in self._opening())

        num_echoed = sum(len(echo.tokens) for echo in self._echoes) * self._per_prompt
        yield await run_apart(opening, num_echoed * self._num_logprobs)
        try:
            async for batch in self.subscription.batches():
                yield b"".join(
                    event(self._chunk(content) | usage)
                    for number, piece in batch
                    for content in self._contents(self._add(number, piece), piece)
                )
        except ApiError as error:
            yield event(error.content())
            return
        finally:
            self._watch.end()
        if include_usage:
            yield event(self.form.envelope([], chunk=True) | {"usage": self._watch.usage()})
        yield b"data: [DONE]\n\n"

    def _echoed(self) -> Iterator[tuple[Choice, Echo]]:
        """Every choice that begins with its prompt."""
        for number, echo in enumerate(self._echoes):
            for sample in range(self._per_prompt):
                choice = self._choices[number * self._per_prompt + sample]
                choice.text = echo.text
                yield choice, echo

    def _add(self, number: int, piece: Piece) -> Choice:
        choice = self._choices[number * self._per_prompt + piece.row]
        choice.text += piece.text
        if piece.token is not None:
            choice.tokens.append(piece.token)
            self._watch.token()
        choice.finish_reason = piece.finish_reason
        return choice

    def _opening(self) -> Iterator[Json]:
        for choice in self._choices:
            content = self.form.opening(choice.index)
            if content is not None:
                yield content
        for choice, echo in self._echoed():
            yield self.form.delta(choice, echo.text, echo.tokens, None)

    def _contents(self, choice: Choice, piece: Piece) -> Iterator[Json]:
        """Nothing if there is no new text: half a character, or what may be a stop string."""
        tokens = [piece.token] if piece.token is not None and self.form.with_logprobs else []
        if piece.text or tokens:
            yield self.form.delta(choice, piece.text, tokens, None)
        if piece.finish_reason:
            yield self.form.delta(choice, "", [], piece.finish_reason)

    def _chunk(self, content: Json) -> Json:
        return self.form.envelope([content], chunk=True)


class EventStream(Response):
    """Server-sent events."""

    media_type = "text/event-stream"

    def __init__(self, answer: Answer, include_usage: bool) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._answer = answer
        self._include_usage = include_usage

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events."""
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        with closing(self._answer.subscription):
            await send(start)
            async for part in self._answer.events(self._include_usage):
                if part:
                    await send({"type": "http.response.body", "body": part, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
