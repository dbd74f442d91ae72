"""Closes connections that stall or send endless headers, which uvicorn itself would keep open.

A client that does not complete its header, or stops reading an answer, costs memory and a file
descriptor, but never time of the engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol

from trafo.serve.errors import MAX_HEADER_BYTES, ApiError, header_too_large

HEADER_SECONDS = 30.0
"""for the header of a request to arrive"""
STALL_SECONDS = 60.0
"""how long a client may leave the server's buffer full without reading anything"""


class Connection(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
    """uvicorn's protocol with two timers, bounded headers, and errors as JSON."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._header_timer = _Timer(self._give_up)
        self._stall_timer = _Timer(self._cut_off)
        self._num_header_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:
        """The header is expected from now on."""
        super().connection_made(transport)
        self._header_timer.start(HEADER_SECONDS)

    def data_received(self, data: bytes) -> None:
        """Part of a header or a body."""
        before = self.cycle
        was_body = before is not None and before.more_body
        super().data_received(data)
        if self.cycle is not before or was_body:  # a header was complete
            self._num_header_bytes = 0
        else:
            self._num_header_bytes += len(data)
            if self._num_header_bytes > MAX_HEADER_BYTES and not self.transport.is_closing():
                self._refuse(header_too_large())
        if self._is_between_requests():
            self._header_timer.start(HEADER_SECONDS)
        else:
            self._header_timer.stop()

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this if it cannot read a request."""
        self._refuse(ApiError(400, msg, code="invalid_http"))

    def _refuse(self, error: ApiError) -> None:
        if not self._is_between_requests():  # in the middle of an answer to an earlier request
            self.transport.abort()
            return
        response = error.response()
        head = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}".encode()]
        head += [b": ".join(pair) for pair in (*response.raw_headers, (b"connection", b"close"))]
        self.transport.write(b"\r\n".join([*head, b"", bytes(response.body)]))
        self.transport.close()

    def pause_writing(self) -> None:
        """The buffer is full: the client reads too slowly, or not at all."""
        super().pause_writing()
        self._stall_timer.start(STALL_SECONDS)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._stall_timer.stop()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nothing is expected any more."""
        super().connection_lost(exc)
        self._header_timer.stop()
        self._stall_timer.stop()

    def _is_between_requests(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _give_up(self) -> None:
        if self._is_between_requests():
            self.transport.close()

    def _cut_off(self) -> None:
        self.transport.abort()  # closing would wait until the buffer is read


class _Timer:
    """Calls `action` some time after its start, unless it is stopped before."""

    def __init__(self, action: Callable[[], None]) -> None:
        self._action = action
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float) -> None:
        """Does not restart a running timer: a trickle of bytes must not extend it."""
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_later(seconds, self._ring)

    def stop(self) -> None:
        """Does nothing if it is not running."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        self._handle = None
        self._action()
