"""What all endpoints share: models and settings, validated bodies, prompts as ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import ValidationError
from starlette.requests import Request as HttpRequest

from trafo.generate.complete import encode_prompt
from trafo.generate.config import GenerationConfig
from trafo.generate.decode import check_prompt
from trafo.runtime.short_thread import in_short_thread_async
from trafo.serve.config import ServeConfig
from trafo.serve.errors import ApiError, from_validation, invalid, queue_full, refusing
from trafo.serve.metrics import Metrics
from trafo.serve.models import LanguageModel, Models
from trafo.serve.protocol import Body, TextsOrIds

_Body = TypeVar("_Body", bound=Body)
_Result = TypeVar("_Result")


@dataclass
class Service:
    """What the endpoints work with."""

    models: Models
    config: ServeConfig
    metrics: Metrics
    one_at_a_time: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    num_jobs: int = 0

    async def compute(self, job: Callable[[], _Result]) -> _Result:
        """Run a computation outside the engines, one at a time; this queue is bounded, too."""
        if self.num_jobs >= self.config.max_queue:
            raise queue_full()
        self.num_jobs += 1
        try:
            await self.one_at_a_time.acquire()
        except asyncio.CancelledError:
            self.num_jobs -= 1
            raise
        # A thread cannot be stopped: it keeps its place until it ends, even if the client is gone.
        running = asyncio.ensure_future(in_short_thread_async(job))
        running.add_done_callback(self._end_job)
        return await asyncio.shield(running)

    def _end_job(self, done: asyncio.Future[Any]) -> None:
        self.num_jobs -= 1
        self.one_at_a_time.release()
        if not done.cancelled():
            done.exception()  # marks it as retrieved, or asyncio would log it


def service_of(http: HttpRequest) -> Service:
    """The service that got the request."""
    service: Service = http.app.state.service
    return service


async def read_body(http: HttpRequest, kind: type[_Body]) -> _Body:
    """The validated body."""
    try:
        return kind.model_validate_json(await http.body())
    except ValidationError as error:
        raise from_validation(error) from None


def prompts_of(given: TextsOrIds, name: str) -> list[str | list[int]]:
    """One prompt or several: each a text or ids."""
    if isinstance(given, str):
        return [given]
    if not given:
        raise invalid(f"{name} is an empty list", name)
    if isinstance(given[0], int):
        return [given]
    return list(given)


def prompt_ids(
    service: Service, served: LanguageModel, prompt: str | list[int], name: str
) -> list[int]:
    """The ids of a prompt; refused if too many, or outside the vocabulary."""
    model, tokenizer = served.bundle.model, served.bundle.tokenizer
    ids = prompt
    with refusing(name):
        if isinstance(ids, str):
            ids = encode_prompt(tokenizer, ids, GenerationConfig())
        check_prompt(model, ids)
    return fitting(service, served, ids, name)


def fitting(service: Service, served: LanguageModel, ids: list[int], name: str) -> list[int]:
    """The same ids, unless there are too many."""
    context = served.bundle.model.context_length
    most = min(context, service.config.max_prompt_tokens or context)
    if len(ids) > most:
        what = f"{name} has {len(ids):,} tokens; at most {most:,} are allowed"
        raise ApiError(400, what, param=name, code="context_length_exceeded")
    return ids
