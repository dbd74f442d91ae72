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
)
from trafo.serve.formats import Json, encode_json
from trafo.serve.metrics import Metrics
from trafo.serve.models import LanguageModel, Models
from trafo.serve.protocol import Body, TextsOrIds

_Body = TypeVar("_Body", bound=Body)
_Result = TypeVar("_Result")
_MOST_INLINE = 5_000
_MOST_CONTAINERS = 10_000
"""lists and objects of a body: making 200,000 of them takes half a second"""
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)


@dataclass
class Service:
    """What the endpoints work with."""

    models: Models
    config: ServeConfig
    metrics: Metrics
    one_at_a_time: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    num_jobs: int = 0

    async def compute(self, job: Callable[[Callable[[], None]], _Result]) -> _Result:
        """Run a computation outside the engines, one at a time; this queue is bounded, too.

        Before each step the job calls the function that it gets. Once nobody waits for the result
        any more, that raises an error, which ends the job.
        """
        if self.num_jobs >= self.config.max_queue:
            raise queue_full()
        self.num_jobs += 1
        try:
            await self.one_at_a_time.acquire()
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
        self.one_at_a_time.release()
        if not done.cancelled():
            done.exception()  # marks it as retrieved, or asyncio would log it


def service_of(http: HttpRequest) -> Service:
    """The service that got the request."""
    service: Service = http.app.state.service
    return service


async def run_apart(job: Callable[[], _Result], size: float) -> _Result:
    """Run a job of this size (characters, numbers) in a thread if it would hold the others up."""
    return await asyncio.to_thread(job) if size > _MOST_INLINE else job()


async def json_response(make_content: Callable[[], Json], size: float = math.inf) -> Response:
    """Make an answer of about so many numbers or strings, in a thread if that may be many."""
    return await run_apart(lambda: json_response_now(make_content()), size)


def json_response_now(content: Json) -> Response:
    """Encode an answer; a large one not on the event loop."""
    return Response(encode_json(content), media_type="application/json")


async def read_body(http: HttpRequest, kind: type[_Body]) -> _Body:
    """The validated body."""
    body = await http.body()
    number = _num_containers(body)
    if number > _MOST_CONTAINERS:
        what = (
            f"the body has {number:,} lists and objects; at most {_MOST_CONTAINERS:,} are allowed"
        )
        raise ApiError(413, what, code="request_too_large")
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise from_validation(error) from None


def _num_containers(body: bytes) -> int:
    """Brackets and braces outside strings, counted before the whole body is made into objects."""
    number = body.count(b"[") + body.count(b"{")
    if number <= _MOST_CONTAINERS:
        return number
    outside = _STRING.sub(b"", body)
    return outside.count(b"[") + outside.count(b"{")


def prompts_of(given: TextsOrIds, name: str, most: int) -> list[str | list[int]]:
    """One prompt or several: each a text or ids."""
    if isinstance(given, str):
        return [given]
    if not given:
        raise invalid(f"{name} is an empty list", name)
    if isinstance(given[0], int):
        return [given]
    if len(given) > most:
        raise invalid(f"{name} has {len(given):,} texts; at most {most:,} are allowed", name)
    return list(given)


async def prompt_ids(
    service: Service, served: LanguageModel, prompts: list[str | list[int]], name: str
) -> list[list[int]]:
    """The ids of prompts; refused if too many, or outside the vocabulary."""
    model, tokenizer = served.bundle.model, served.bundle.tokenizer

    def encode() -> list[list[int]]:
        found = []
        with refusing(name):
            for prompt in prompts:
                if isinstance(prompt, str):
                    prompt = encode_prompt(tokenizer, prompt, GenerationConfig())
                found.append(fitting(service, served, prompt, name))
                check_prompt(model, prompt)
        return found

    return await run_apart(encode, sum(map(len, prompts)))


def fitting(service: Service, served: LanguageModel, ids: list[int], name: str) -> list[int]:
    """The same ids, unless there are too many."""
    context = served.bundle.model.context_length
    most = min(context, service.config.max_prompt_tokens or context)
    if len(ids) > most:
        # Clients such as LiteLLM know this error by OpenAI's words.
        what = f"{name} has {len(ids):,} tokens; this model's maximum context length is {most:,}"
        raise ApiError(400, what, param=name, code="context_length_exceeded")
    return ids
