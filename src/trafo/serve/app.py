"""The application: routes, errors, start and stop."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from trafo.errors import TrafoError
from trafo.serve import endpoints
from trafo.serve.errors import ApiError, from_trafo
from trafo.serve.models import Models
from trafo.serve.page_files import page_routes

ROUTES = [
    Route("/v1/models", endpoints.list_models),
    Route("/v1/models/{name:path}", endpoints.one_model),
    Route("/v1/completions", endpoints.completions, methods=["POST"]),
    Route("/v1/chat/completions", endpoints.chat_completions, methods=["POST"]),
    Route("/tokenize", endpoints.tokenize, methods=["POST"]),
    Route("/detokenize", endpoints.detokenize, methods=["POST"]),
    Route("/health", endpoints.health),
]


def create_app(models: Models) -> Starlette:
    """The application that serves these models."""

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        for served in models:
            served.worker.start()
        yield
        for served in models:
            served.worker.stop()

    app = Starlette(
        routes=[*ROUTES, *page_routes()],
        lifespan=life,
        exception_handlers={
            ApiError: _api_error,
            TrafoError: _trafo_error,
            HTTPException: _http_error,
        },
    )
    app.state.models = models
    return app


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
