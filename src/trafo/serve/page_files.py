"""The page's files, read once at the start: no path from a request reaches the file system."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from starlette.responses import Response
from starlette.routing import Route

POLICY = "; ".join(
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

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


def page_routes() -> list[Route]:
    """A route for each file of the page; `/` is its index.html."""
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
        return Response(content, media_type=kind, headers=HEADERS)

    return send


# Not from the machine's own tables: a module with the wrong type is not run.
_KINDS = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
