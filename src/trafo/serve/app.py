"""The application: routes, the page's files, errors, start and stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from trafo.errors import TrafoError
from trafo.serve import completions, endpoints
from trafo.serve.config import ServeConfig
from trafo.serve.errors import ApiError, failed, invalid
from trafo.serve.guard import Guard
from trafo.serve.inside.endpoints import ROUTES as INSIDE_ROUTES
from trafo.serve.metrics import EngineCollector, Metrics
from trafo.serve.models import Models, follow_runs
from trafo.serve.service import Service

ROUTES = [
    *INSIDE_ROUTES,
    Route("/v1/models", endpoints.list_models),
    Route("/v1/models/{name:path}", endpoints.one_model),
    Route("/v1/completions", completions.completions, methods=["POST"]),
    Route("/v1/chat/completions", completions.chat_completions, methods=["POST"]),
    Route("/v1/embeddings", endpoints.embeddings, methods=["POST"]),
    Route("/v1/translations", endpoints.translations, methods=["POST"]),
    Route("/tokenize", endpoints.tokenize, methods=["POST"]),
    Route("/detokenize", endpoints.detokenize, methods=["POST"]),
    Route("/health", endpoints.health),
    Route("/metrics", endpoints.metrics),
]

_POLICY = "; ".join(
    [
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "font-src 'self'",
        "manifest-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    ]
)
"""Content-Security-Policy: nothing from elsewhere, no inline scripts"""

_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
# Not from the machine's own tables: a module with the wrong type is not run.
_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class App:
    """The service as an ASGI application."""

    def __init__(self, models: Models, config: ServeConfig | None = None) -> None:
        config = config or ServeConfig()
        metrics = Metrics()
        self.service = Service(models, config, metrics)
        metrics.registry.register(EngineCollector(models))
        page = _page_routes()
        inner = Starlette(
            routes=[*ROUTES, *page],
            lifespan=self._lifespan,
            exception_handlers=dict.fromkeys(
                (ApiError, TrafoError, HTTPException, Exception), _refuse
            ),
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
        """Answer one request, or start and stop."""
        await self._app(scope, receive, send)

    @property
    def num_active(self) -> int:
        """Requests that are not finished."""
        workers = self.service.models.workers
        return sum(worker.num_active for worker in workers) + self.service.num_jobs

    @asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        models, config = self.service.models, self.service.config
        for worker in models.workers:
            worker.start()
        following = asyncio.create_task(follow_runs(models, config)) if config.follow else None
        yield
        if following is not None:
            following.cancel()
            with suppress(asyncio.CancelledError):
                await following
        for worker in models.workers:
            await asyncio.to_thread(worker.stop)


async def _refuse(http: HttpRequest, error: Exception) -> Response:
    """Write an error as OpenAI does, also Starlette's for unknown paths and wrong methods."""
    if isinstance(error, HTTPException):
        what = f"{error.detail}: {http.method} {http.url.path}"
        error = ApiError(error.status_code, what, code="unknown_url")
    elif isinstance(error, TrafoError):
        error = invalid(str(error), None)
    elif not isinstance(error, ApiError):
        error = failed()  # the guard prints its traceback
    return error.response()


def _page_routes() -> list[Route]:
    """Make a route for each file of the page, `/` for its index.html.

    They are read once, at the start: no path from a request reaches the file system.
    """
    folder = Path(__file__).with_name("page")
    names = [
        file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.suffix in _KINDS
    ]
    return [
        Route("/" if name == "index.html" else f"/{name}", _sender(folder / name)) for name in names
    ]


def _sender(file: Path) -> Callable[[object], Awaitable[Response]]:
    content, kind = file.read_bytes(), _KINDS[file.suffix]

    async def send(_: object) -> Response:
        return Response(content, media_type=kind, headers=_HEADERS)

    return send
