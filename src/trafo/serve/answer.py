"""Pieces from the engine -> one JSON answer, or a stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, suppress

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from trafo.generate.request import Piece
from trafo.serve.errors import ApiError
from trafo.serve.formats import Choice, Format, Json, Usage, envelope
from trafo.serve.worker import Subscription

_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}


class Answer:
    """Joins pieces into choices; choice i * n + j is sample j of prompt i."""

    def __init__(self, subscription: Subscription, form: Format) -> None:
        requests = subscription.requests
        self.form = form
        self.usage = Usage(sum(len(request.prompt) for request in requests))
        self._subscription = subscription
        self._per_prompt = requests[0].config.num_samples
        self._choices = [Choice(index) for index in range(self._per_prompt * len(requests))]

    async def whole(self, http: HttpRequest) -> Response:
        """One answer, when everything is done; a client that goes away ends it."""
        collecting = asyncio.ensure_future(self._collect())
        leaving = asyncio.ensure_future(_left(http))
        try:
            await asyncio.wait((collecting, leaving), return_when=asyncio.FIRST_COMPLETED)
            if not collecting.done():
                return Response(status_code=499)  # nobody reads it
            collecting.result()
        finally:
            for task in (collecting, leaving):
                task.cancel()
            with suppress(asyncio.CancelledError, ApiError):
                await collecting
        choices = [self.form.whole(choice) for choice in self._choices]
        return JSONResponse(envelope(self.form, choices) | {"usage": self.usage.content()})

    def stream(self, *, include_usage: bool) -> Response:
        """Chunks as they come: `data:` lines, `[DONE]` last."""
        return StreamingResponse(
            self._events(include_usage), media_type="text/event-stream", headers=_HEADERS
        )

    async def _collect(self) -> None:
        async with aclosing(self._subscription.pieces()) as pieces:
            async for number, piece in pieces:
                self._add(number, piece)

    def _add(self, number: int, piece: Piece) -> Choice:
        choice = self._choices[number * self._per_prompt + piece.row]
        choice.text += piece.text
        if piece.token is not None:
            self.usage.completion_tokens += 1
            choice.tokens.append(piece.token)
        choice.finish_reason = piece.finish_reason
        return choice

    async def _events(self, include_usage: bool) -> AsyncIterator[bytes]:
        usage: Json = {"usage": None} if include_usage else {}
        opened = [self.form.opening(choice.index) for choice in self._choices]
        for content in opened:
            if content is not None:
                yield _event(envelope(self.form, [content], chunk=True) | usage)
        try:
            async with aclosing(self._subscription.pieces()) as pieces:
                async for number, piece in pieces:
                    for content in self._chunks(self._add(number, piece), piece):
                        yield _event(envelope(self.form, [content], chunk=True) | usage)
        except ApiError as error:
            yield _event(error.content())
            return
        if include_usage:
            yield _event(envelope(self.form, [], chunk=True) | {"usage": self.usage.content()})
        yield b"data: [DONE]\n\n"

    def _chunks(self, choice: Choice, piece: Piece) -> Iterator[Json]:
        """None while there is nothing to tell: half a character, perhaps a stop string."""
        tokens = [piece.token] if piece.token is not None and self.form.with_logprobs else []
        if piece.text or tokens:
            yield self.form.delta(choice, piece.text, tokens, None)
        if piece.finish_reason:
            yield self.form.delta(choice, "", [], piece.finish_reason)


def _event(content: Json) -> bytes:
    text = json.dumps(content, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + text.encode() + b"\n\n"


async def _left(http: HttpRequest) -> None:
    """Returns when the client goes away."""
    while (await http.receive())["type"] != "http.disconnect":
        pass
