"""Checks of every request: shutdown, host, origin, API key, rate, size, time.

Plain ASGI around the application, so that streams pass through untouched.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
import traceback
from collections import OrderedDict, deque
from collections.abc import Iterable
from ipaddress import ip_address
from itertools import chain

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trafo.serve.config import ServeConfig
from trafo.serve.errors import (
    MAX_HEADER_BYTES,
    ApiError,
    client_gone,
    failed,
    header_too_large,
    print_message,
    shutting_down,
    timed_out,
    too_large,
)
from trafo.serve.metrics import Metrics
from trafo.serve.protocol import encode_event, parse_count

_ERROR_SECONDS = 5.0
"""for a client to take the error that ends its request"""
BODY_SECONDS = 30.0
"""for the body of a request to arrive, all of it"""
_MAX_CLIENTS = 10_000
"""whose requests are counted"""


class RateLimit:
    """Limits the requests of each client in any minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, client: str, now: float) -> float:
        """Count a request and return the seconds to wait if it is one too many, else 0."""
        times = self._times.setdefault(client, deque())
        self._times.move_to_end(client)
        if len(self._times) > _MAX_CLIENTS:
            self._times.popitem(last=False)
        while times and times[0] <= now - 60:
            times.popleft()
        if len(times) >= self._per_minute:
            return times[0] + 60 - now
        times.append(now)
        return 0.0


class Guard:
    """Refuses a request, or passes it to the application."""

    def __init__(
        self,
        app: ASGIApp,
        config: ServeConfig,
        metrics: Metrics,
        public: frozenset[str],
        counted: frozenset[str],
    ) -> None:
        self.closing = False
        self._app, self._config, self._metrics = app, config, metrics
        self._public, self._counted = public, counted
        self._hosts = _host_names(config)
        self._open: set[_OpenRequest] = set()
        self._rate = RateLimit(config.requests_per_minute) if config.requests_per_minute else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sender, open_request = _Sender(send), _OpenRequest(receive, self._config)
        with self._metrics.open.track_inprogress():
            try:
                self._check(scope)
                async with open_request.time:
                    self._open.add(open_request)
                    try:
                        await self._app(scope, open_request.read, sender)
                    finally:
                        self._open.discard(open_request)
                        open_request.close()
            except ApiError as error:
                await sender.refuse(error, scope, receive)
            except TimeoutError:
                await sender.refuse(open_request.error, scope, receive)
            except Exception:
                print_message(traceback.format_exc())
                await sender.refuse(failed(), scope, receive)
        path = scope["path"] if scope["path"] in self._counted else "other"
        self._metrics.requests.labels(path, sender.status).inc()

    @property
    def num_open(self) -> int:
        """Requests that are being answered."""
        return len(self._open)

    def end_all(self, error: ApiError) -> None:
        """Answer all open requests, streams too, with an error."""
        for open_request in self._open:
            open_request.end(error)

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self.closing:
            raise shutting_down()
        if sum(map(len, chain(*scope["headers"], [scope["query_string"]]))) > MAX_HEADER_BYTES:
            raise header_too_large()
        self._check_host(headers)
        self._check_origin(headers)
        if scope["path"] in self._public:
            return
        client = self._check_key(headers) or (scope.get("client") or ("",))[0]
        if self._rate is not None and (wait := self._rate.wait(client, time.monotonic())):
            what = f"more than {self._config.requests_per_minute} requests in a minute"
            raise ApiError(429, what, code="rate_limit_exceeded", retry_after=int(wait) + 1)
        length = parse_count(headers.get("content-length", "0"))
        if length is None or length > self._config.max_body_bytes:
            raise too_large(f"is larger than {self._config.max_body_bytes:,} bytes")

    def _check_host(self, headers: Headers) -> None:
        """Refuse pages that let their own name point to this machine (DNS rebinding)."""
        host = headers.get("host", "")
        name = re.sub(r":\d+$", "", host).lower()  # without the port
        if self._hosts and name not in self._hosts:
            what = f"the host {host} is not allowed; see --allowed-hosts"
            raise ApiError(403, what, code="host_not_allowed")

    def _check_origin(self, headers: Headers) -> None:
        """Refuse web pages from elsewhere that use the service from their reader's browser."""
        origin, allowed = headers.get("origin"), self._config.cors_origins
        if origin is None or origin in allowed or "*" in allowed:
            return
        if origin.partition("://")[2] != headers.get("host"):
            what = f"the origin {origin} is not allowed; see --cors-origins"
            raise ApiError(403, what, code="origin_not_allowed")

    def _check_key(self, headers: Headers) -> str | None:
        """Return the client's key, or None if no key is required."""
        key = self._config.api_key
        if key is None:
            return None
        scheme, _, given = headers.get("authorization", "").partition(" ")
        # Starlette decodes headers as Latin-1.
        is_right = hmac.compare_digest(given.strip().encode("latin-1"), key.encode())
        if scheme.lower() != "bearer" or not is_right:
            raise ApiError(401, "the API key is missing or wrong", code="invalid_api_key")
        return key


def _host_names(config: ServeConfig) -> set[str]:
    """Return the names by which the service may be called; empty: any."""
    names = {host.lower() for host in config.allowed_hosts}
    try:
        is_local = ip_address(config.host).is_loopback
    except ValueError:
        is_local = config.host == "localhost"
    if is_local or names:
        own = f"[{config.host}]" if ":" in config.host else config.host
        names |= {"localhost", "127.0.0.1", "[::1]", own}
    return names


class _Sender:
    """Sends an answer, and remembers how far it is."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._is_events = self._is_complete = False
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self._is_events = _is_stream(message["headers"])
        else:
            self._is_complete = not message.get("more_body", False)
        await self._send(message)

    async def refuse(self, error: ApiError, scope: Scope, receive: Receive) -> None:
        """Answer with an error. Of an answer that has begun, only a stream can end with one."""
        try:
            async with asyncio.timeout(_ERROR_SECONDS):
                if not self.status:
                    await error.response()(scope, receive, self)
                elif self._is_events and not self._is_complete:
                    await self(
                        {"type": "http.response.body", "body": encode_event(error.content())}
                    )
        except TimeoutError:  # it does not read
            pass


def _is_stream(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    return any(k == b"content-type" and v.startswith(b"text/event-stream") for k, v in headers)


class _OpenRequest:
    """The client's side of a request: its body, within bounds, and when it ends from outside.

    It ends when its time is over, when the client goes away and when the server stops. The code
    that answers it is then cancelled, wherever it waits.
    """

    def __init__(self, receive: Receive, config: ServeConfig) -> None:
        self.time = asyncio.timeout(config.max_seconds)
        self.error = timed_out(config.max_seconds)
        """why it ended"""
        self._receive, self._max_bytes = receive, config.max_body_bytes
        self._body_until = asyncio.get_running_loop().time() + BODY_SECONDS
        self._num_bytes = 0
        self._leaving: asyncio.Task[None] | None = None

    async def read(self) -> Message:
        """Return the next part of the body, and after the last one wait for the client to leave."""
        if self._leaving is not None:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._body_until):
                message = await self._receive()
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time", code="timeout") from None
        self._num_bytes += len(message.get("body", b""))
        if self._num_bytes > self._max_bytes:
            raise too_large(f"is larger than {self._max_bytes:,} bytes")
        if message["type"] == "http.request" and not message.get("more_body", False):
            self._leaving = asyncio.create_task(self._end_with_client())
        return message

    def end(self, error: ApiError) -> None:
        """End it now."""
        if not self.time.expired():
            self.error = error
            self.time.reschedule(asyncio.get_running_loop().time())

    def close(self) -> None:
        """Stop waiting for the client to leave: it is answered."""
        if self._leaving is not None:
            self._leaving.cancel()

    async def _end_with_client(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.end(client_gone())
