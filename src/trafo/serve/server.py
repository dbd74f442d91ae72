"""Runs the application until a signal, then lets running requests finish."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from types import FrameType

import uvicorn

from trafo.errors import InputError
from trafo.serve.app import App
from trafo.serve.config import ServeConfig
from trafo.serve.connections import Connection
from trafo.serve.errors import shutting_down
from trafo.serve.messages import tell

_LOOK = 0.05
"""seconds between checks of what is still running"""
_LAST_WORDS = 1.0
"""seconds for the errors that end what is still running"""


def bind_port(config: ServeConfig) -> list[socket.socket]:
    """Take the port, before anything slow; a host name may have several addresses."""
    sockets: list[socket.socket] = []
    port = config.port
    try:
        found = socket.getaddrinfo(config.host, port, type=socket.SOCK_STREAM)
        for family, _, _, _, address in dict.fromkeys(found):
            sockets.append(bound := socket.socket(family))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            bound.bind((address[0], port, *address[2:]))
            port = bound.getsockname()[1]  # of port 0, the one that was free
    except OSError as error:
        for each in sockets:
            each.close()
        what = f"cannot listen on {config.host}, port {port}: {error.strerror}"
        raise InputError(what, hint="choose another with --host or --port") from None
    return sockets


class Server(uvicorn.Server):
    """On SIGTERM or Ctrl-C: refuse new requests, finish running ones within a bound, stop.

    A second signal stops at once.
    """

    def __init__(self, app: App) -> None:
        config = app.service.config
        super().__init__(
            uvicorn.Config(
                app,
                host=config.host,
                port=config.port,
                http=Connection,
                log_level="warning",
                access_log=False,
                lifespan="on",
                # The drain below has waited already; what is left now is cut off.
                timeout_graceful_shutdown=2,
            )
        )
        self._app = app
        self._draining: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Listen, then say so."""
        self._loop = asyncio.get_running_loop()
        # What is loaded now stays. To look for garbage in it again and again would stop all
        # threads for a fifth of a second each time.
        gc.collect()
        gc.freeze()
        await super().startup(sockets)  # type: ignore[arg-type]
        if self.started:
            names = ", ".join(served.name for served in self._app.service.models)
            tell(f"serving {names} at {self.address}; Ctrl-C stops")

    @property
    def address(self) -> str:
        """Where it listens; the port is known once it does."""
        host, port = self.config.host, self.config.port
        if self.servers and not port:
            port = self.servers[0].sockets[0].getsockname()[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """First signal: begin to drain; second: stop."""
        if self._app.guard.closing or self._loop is None:
            super().handle_exit(sig, frame)
            return
        self._app.guard.closing = True
        self._loop.call_soon_threadsafe(self._begin_draining)

    def _begin_draining(self) -> None:
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        bound = self._app.service.config.shutdown_seconds
        until = time.monotonic() + bound
        guard = self._app.guard
        if number := guard.num_open:
            tell(f"stopping: {number} running requests have {bound:g} seconds to finish")
        while guard.num_open and time.monotonic() < until:
            await asyncio.sleep(_LOOK)
        guard.end_all(shutting_down())
        until = time.monotonic() + _LAST_WORDS
        while guard.num_open and time.monotonic() < until:
            await asyncio.sleep(_LOOK)
        self.should_exit = True
