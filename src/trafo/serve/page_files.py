"""The page's files, read once at the start: no path from a request reaches the file system."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib.resources import files
from importlib.resources.abc import Traversable

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
    found = dict(_walk(files("trafo.serve") / "page", ""))
    return [
        Route("/" if name == "index.html" else f"/{name}", _sender(name, content))
        for name, content in found.items()
    ]


def _walk(folder: Traversable, prefix: str) -> list[tuple[str, bytes]]:
    found = []
    for entry in sorted(folder.iterdir(), key=lambda each: each.name):
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        else:
            found.append((prefix + entry.name, entry.read_bytes()))
    return found


def _sender(name: str, content: bytes) -> Callable[[object], Awaitable[Response]]:
    kind = _KINDS[name.rpartition(".")[2]]

    async def send(_: object) -> Response:
        return Response(content, media_type=kind, headers=HEADERS)

    return send


# Not from the machine's own tables: a module with the wrong type is not run.
_KINDS = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "svg": "image/svg+xml",
}
