"""What all endpoints share: models and settings, validated bodies, prompts as ids."""

from __future__ import annotations

import asyncio
import math
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from trafo.generate.complete import encode_prompt
from trafo.generate.config import GenerationConfig
from trafo.generate.request import check_prompt
from trafo.runtime.threads import in_short_thread_async
from trafo.serve.config import ServeConfig
from trafo.serve.errors import (
    ApiError,
    client_gone,
    from_validation,
    invalid,
    queue_full,
    refusing,
    too_large,
)
from trafo.serve.metrics import Metrics
from trafo.serve.models import Models, ServedModel
from trafo.serve.protocol import Body, Json, TextsOrIds, encode_json

_Body = TypeVar("_Body", bound=Body)
_Result = TypeVar("_Result")
_MAX_INLINE = 5_000
"""characters or numbers that are worked on by the event loop itself"""
_MAX_CONTAINERS = 10_000
"""lists and objects of a body: making 200,000 of them takes half a second"""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


@dataclass
class Service:
    """What the endpoints work with."""

    models: Models
    config: ServeConfig
    metrics: Metrics
    num_jobs: int = 0
    """computations that wait or run"""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def compute(self, job: Callable[[Callable[[], None]], _Result]) -> _Result:
        """Run a computation outside the engines, one at a time and from a bounded queue.

        Before each step the job calls the function that it gets. Once nobody waits for the result
        any more, that raises an error, which ends the job.
        """
        if self.num_jobs >= self.config.max_queue:
            raise queue_full()
        self.num_jobs += 1
        try:
            await self._turn.acquire()
        except asyncio.CancelledError:
            self.num_jobs -= 1
            raise
        # A thread cannot be stopped: it keeps its place until it ends, even if the client is gone.
        is_abandoned = threading.Event()

        def check() -> None:
            if is_abandoned.is_set():
                raise client_gone()

        running = asyncio.ensure_future(in_short_thread_async(lambda: job(check)))
        running.add_done_callback(self._end_job)
        try:
            return await asyncio.shield(running)
        finally:
            is_abandoned.set()

    def _end_job(self, done: asyncio.Future[Any]) -> None:
        self.num_jobs -= 1
        self._turn.release()
        if not done.cancelled():
            done.exception()  # marks it as retrieved, or asyncio would log it


def service_of(http: HttpRequest) -> Service:
    """Return the service that got the request."""
    service: Service = http.app.state.service
    return service


async def run_apart(job: Callable[[], _Result], size: float) -> _Result:
    """Run a job of this size (characters, numbers) in a thread if it would hold the others up."""
    return await asyncio.to_thread(job) if size > _MAX_INLINE else job()


async def json_response(make_content: Callable[[], Json], size: float = math.inf) -> Response:
    """Make an answer of about so many numbers or strings, in a thread if that may be many."""
    return await run_apart(lambda: json_response_now(make_content()), size)


def json_response_now(content: Json) -> Response:
    """Encode an answer at once, which for a large one is not for the event loop."""
    return Response(encode_json(content), media_type="application/json")


async def read_body(http: HttpRequest, kind: type[_Body]) -> _Body:
    """Read and validate the body of a request."""
    body = await http.body()
    number = _num_containers(body)
    if number > _MAX_CONTAINERS:
        raise too_large(
            f"has {number:,} lists and objects; at most {_MAX_CONTAINERS:,} are allowed"
        )
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise from_validation(error) from None


def _num_containers(body: bytes) -> int:
    """Count brackets and braces outside strings, before the body is made into objects."""
    number = body.count(b"[") + body.count(b"{")
    if number <= _MAX_CONTAINERS:
        return number
    outside = _STRING.sub(b"", body)
    return outside.count(b"[") + outside.count(b"{")


def list_prompts(given: TextsOrIds, name: str, most: int) -> list[str | list[int]]:
    """Return one prompt or several as a list: each a text or ids."""
    if isinstance(given, str):
        return [given]
    if not given:
        raise invalid(f"{name} is an empty list", name)
    if isinstance(given[0], int):
        return [given]
    if len(given) > most:
        raise invalid(f"{name} has {len(given):,} texts; at most {most:,} are allowed", name)
    return list(given)


async def encode_prompts(
    service: Service, served: ServedModel, prompts: list[str | list[int]], name: str
) -> list[list[int]]:
    """Return the ids of prompts that the model can take."""
    tokenizer, config = served.bundle.tokenizer, GenerationConfig()

    def encode() -> list[list[int]]:
        with refusing(name):
            found = [
                encode_prompt(tokenizer, prompt, config) if isinstance(prompt, str) else prompt
                for prompt in prompts
            ]
        for ids in found:
            check_prompt_ids(service, served, ids, name)
        return found

    return await run_apart(encode, sum(map(len, prompts)))


def check_prompt_ids(service: Service, served: ServedModel, ids: list[int], name: str) -> None:
    """Refuse a prompt that is too long, empty, or has ids outside the vocabulary.

    This is the only check on the way of a prompt from a client to the engine.
    """
    model = served.bundle.model
    most = min(model.context_length, service.config.max_prompt_tokens or model.context_length)
    if len(ids) > most:
        # Clients such as LiteLLM know this error by OpenAI's words.
        what = f"{name} has {len(ids):,} tokens; this model's maximum context length is {most:,}"
        raise ApiError(400, what, param=name, code="context_length_exceeded")
    with refusing(name):
        check_prompt(model, ids)
