"""The application: routes, errors, start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from trafo.errors import TrafoError
from trafo.serve import endpoints, more_endpoints
from trafo.serve.config import ServeConfig
from trafo.serve.errors import ApiError, from_trafo
from trafo.serve.follow import follow
from trafo.serve.guard import Guard
from trafo.serve.inside.endpoints import ROUTES as INSIDE_ROUTES
from trafo.serve.metrics import EngineCollector, Metrics
from trafo.serve.models import Models
from trafo.serve.page_files import page_routes
from trafo.serve.reading import Service
from trafo.serve.worker import Worker

ROUTES = [
    *INSIDE_ROUTES,
    Route("/v1/models", more_endpoints.list_models),
    Route("/v1/models/{name:path}", more_endpoints.one_model),
    Route("/v1/completions", endpoints.completions, methods=["POST"]),
    Route("/v1/chat/completions", endpoints.chat_completions, methods=["POST"]),
    Route("/v1/embeddings", more_endpoints.embeddings, methods=["POST"]),
    Route("/v1/translations", more_endpoints.translations, methods=["POST"]),
    Route("/tokenize", more_endpoints.tokenize, methods=["POST"]),
    Route("/detokenize", more_endpoints.detokenize, methods=["POST"]),
    Route("/health", more_endpoints.health),
    Route("/metrics", more_endpoints.metrics),
]


class App:
    """The service as an ASGI application."""

    def __init__(self, models: Models, config: ServeConfig | None = None) -> None:
        config = config or ServeConfig()
        metrics = Metrics()
        self.service = Service(models, config, metrics)
        metrics.registry.register(EngineCollector(self._workers))
        page = page_routes()
        inner = Starlette(
            routes=[*ROUTES, *page],
            lifespan=self._life,
            exception_handlers={
                ApiError: _api_error,
                TrafoError: _trafo_error,
                HTTPException: _http_error,
            },
        )
        inner.state.service = self.service
        public = frozenset(route.path for route in page) | {"/health"}
        self.guard = Guard(
            inner, config, metrics, public, frozenset(route.path for route in ROUTES)
        )
        self._app: ASGIApp = self.guard
        if config.cors_origins:
            self._app = CORSMiddleware(
                self.guard,
                allow_origins=config.cors_origins,
                allow_methods=["GET", "POST"],
                allow_headers=["Authorization", "Content-Type"],
            )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request, or the life of the service."""
        await self._app(scope, receive, send)

    @property
    def num_active(self) -> int:
        """Requests that are not finished."""
        service = self.service
        models = service.models.language_models
        engines = sum(worker.num_active for served in models for worker in served.workers)
        return engines + service.num_jobs

    def _workers(self) -> list[tuple[str, Worker]]:
        return [(each.name, each.worker) for each in self.service.models.language_models]

    @asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        models, config = self.service.models, self.service.config
        for served in models.language_models:
            served.worker.start()
        following = asyncio.create_task(follow(models, config)) if config.follow else None
        yield
        if following is not None:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        for served in models.language_models:
            for worker in served.workers:
                await asyncio.to_thread(worker.stop)


def create_app(models: Models, config: ServeConfig | None = None) -> App:
    """The application that serves these models."""
    return App(models, config)


async def _api_error(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _trafo_error(_: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, TrafoError)
    return from_trafo(error).response()


async def _http_error(http: HttpRequest, error: Exception) -> Response:
    """No such path, or another method than its own."""
    assert isinstance(error, HTTPException)
    what = f"{error.detail}: {http.method} {http.url.path}"
    return ApiError(error.status_code, what, code="unknown_url").response()
