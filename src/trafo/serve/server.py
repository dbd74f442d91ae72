"""Runs the application on a port until a signal, then lets running requests finish.

Connections that stall or send endless headers are closed, which uvicorn itself would keep open. A
client that does not complete its header, or stops reading an answer, costs memory and a file
descriptor, but never time of the engine.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import time
from http import HTTPStatus
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.auto import AutoHTTPProtocol

from trafo.errors import InputError
from trafo.serve.app import App
from trafo.serve.config import ServeConfig
from trafo.serve.errors import (
    MAX_HEADER_BYTES,
    ApiError,
    header_too_large,
    print_message,
    shutting_down,
)

HEADER_SECONDS = 30.0
"""for the header of a request to arrive"""
STALL_SECONDS = 60.0
"""how long a client may leave the server's buffer full without reading anything"""
_POLL_SECONDS = 0.05
"""between checks of what is still running"""
_ERROR_SECONDS = 1.0
"""for the errors that end what is still running"""


def bind_port(config: ServeConfig) -> list[socket.socket]:
    """Take the port on all addresses of the host name, before anything slow."""
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
            print_message(f"serving {names} at {self.address}; Ctrl-C stops")

    @property
    def address(self) -> str:
        """The URL at which it listens."""
        host, port = self.config.host, self.config.port
        if self.servers and not port:
            port = self.servers[0].sockets[0].getsockname()[1]
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain on the first signal, stop on the second."""
        if self._app.guard.closing or self._loop is None:
            super().handle_exit(sig, frame)
            return
        self._app.guard.closing = True
        self._loop.call_soon_threadsafe(self._start_drain)

    def _start_drain(self) -> None:
        self._draining = asyncio.create_task(self._drain())  # kept, or it may be collected

    async def _drain(self) -> None:
        bound, guard = self._app.service.config.shutdown_seconds, self._app.guard
        if number := guard.num_open:
            print_message(f"stopping: {number} running requests have {bound:g} seconds to finish")
        await self._wait_for_requests(bound)
        guard.end_all(shutting_down())
        await self._wait_for_requests(_ERROR_SECONDS)
        self.should_exit = True

    async def _wait_for_requests(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while self._app.guard.num_open and time.monotonic() < until:
            await asyncio.sleep(_POLL_SECONDS)


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol with two timers, bounded headers, and errors as JSON."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None
        self._num_header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Expect a header from now on."""
        super().connection_made(transport)
        self._expect_header(True)

    def data_received(self, data: bytes) -> None:
        """Read part of a header or a body."""
        before = self.cycle
        was_body = before is not None and before.more_body
        super().data_received(data)
        if self.cycle is not before or was_body:  # a header was complete
            self._num_header_bytes = 0
        else:
            self._num_header_bytes += len(data)
            if self._num_header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
                self._refuse(header_too_large())
        self._expect_header(self._is_between_requests())

    def send_400_response(self, msg: str) -> None:
        """Answer what uvicorn cannot read as a request."""
        self._refuse(ApiError(400, msg, code="invalid_http"))

    def pause_writing(self) -> None:
        """Watch a client that reads too slowly, or not at all: the buffer is full."""
        super().pause_writing()
        # Aborted, as closing would wait until the buffer is read.
        self._stall_timer = self.loop.call_later(STALL_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """Stop watching: the client reads again."""
        super().resume_writing()
        self._stop_stall_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Expect nothing any more."""
        super().connection_lost(exc)
        self._expect_header(False)
        self._stop_stall_timer()

    def _refuse(self, error: ApiError) -> None:
        if not self._is_between_requests():  # in the middle of an answer to an earlier request
            self.transport.abort()
            return
        response = error.response()
        head = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode()]
        head += [b": ".join(pair) for pair in (*response.raw_headers, (b"connection", b"close"))]
        self.transport.write(b"\r\n".join([*head, b"", bytes(response.body)]))
        self.transport.close()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _expect_header(self, is_expected: bool) -> None:
        """Start or stop its timer. A running one is not restarted by a trickle of bytes."""
        if is_expected and self._header_timer is None:
            self._header_timer = self.loop.call_later(HEADER_SECONDS, self._close_without_header)
        elif not is_expected and self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _close_without_header(self) -> None:
        self._header_timer = None
        if self._is_between_requests():
            self.transport.close()

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
