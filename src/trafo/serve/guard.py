"""Checks of every request: shutdown, host, origin, API key, rate, size, time.

Plain ASGI around the application, so that streams pass through untouched.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from collections import OrderedDict, deque
from ipaddress import ip_address

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from trafo.serve.config import ServeConfig
from trafo.serve.errors import ApiError, timed_out
from trafo.serve.metrics import Metrics

_SLACK = 5.0
"""seconds after a request's timeout until a client that does not read is cut off"""
_BODY_SECONDS = 30.0
"""seconds for the body of a request to arrive"""
_MOST_CLIENTS = 10_000


class RateLimit:
    """Limits the requests of each client in any minute."""

    def __init__(self, per_minute: int) -> None:
        self._per_minute = per_minute
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def wait(self, client: str, now: float) -> float:
        """Count a request; returns the seconds to wait if it is one too many, else 0."""
        times = self._times.setdefault(client, deque())
        self._times.move_to_end(client)
        if len(self._times) > _MOST_CLIENTS:
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
        self._app = app
        self._config = config
        self._metrics = metrics
        self._public = public
        self._counted = counted
        self._hosts = _host_names(config)
        self._rate = RateLimit(config.requests_per_minute) if config.requests_per_minute else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sender = _Sender(send)
        with self._metrics.open.track_inprogress():
            try:
                self._check(scope)
                limited = _limited(receive, self._config.max_body_bytes)
                async with asyncio.timeout(self._config.max_seconds + _SLACK):
                    await self._app(scope, limited, sender)
            except ApiError as error:
                await _refuse(error, scope, receive, sender)
            except TimeoutError:
                late = timed_out(self._config.max_seconds)
                await _refuse(late, scope, receive, sender)
        path = scope["path"] if scope["path"] in self._counted else "other"
        self._metrics.requests.labels(path, sender.status).inc()

    def _check(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        if self.closing:
            what = "the server is shutting down"
            raise ApiError(503, what, code="shutting_down", retry_after=5)
        self._check_host(headers)
        self._check_origin(headers)
        if scope["path"] in self._public:
            return
        client = self._check_key(headers) or (scope.get("client") or ("",))[0]
        if self._rate is not None and (wait := self._rate.wait(client, time.monotonic())):
            what = f"more than {self._config.requests_per_minute} requests in a minute"
            raise ApiError(429, what, code="rate_limit_exceeded", retry_after=int(wait) + 1)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self._config.max_body_bytes:
            raise _too_large(self._config.max_body_bytes)

    def _check_host(self, headers: Headers) -> None:
        """A page may let its own name point to this machine (DNS rebinding) to pass as ours."""
        host = headers.get("host", "")
        name = re.sub(r":\d+$", "", host).lower()  # without the port
        if self._hosts and name not in self._hosts:
            what = f"the host {host} is not allowed; see --allowed-hosts"
            raise ApiError(403, what, code="host_not_allowed")

    def _check_origin(self, headers: Headers) -> None:
        """A web page from elsewhere must not use the service from its reader's browser."""
        origin, allowed = headers.get("origin"), self._config.cors_origins
        if origin is None or origin in allowed or "*" in allowed:
            return
        if origin.partition("://")[2] != headers.get("host"):
            what = f"the origin {origin} is not allowed; see --cors-origins"
            raise ApiError(403, what, code="origin_not_allowed")

    def _check_key(self, headers: Headers) -> str | None:
        """The client's key; None if no key is required."""
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
    """The names by which the service may be called; empty: any."""
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
    """Remembers what was sent."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.status = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        await self._send(message)


async def _refuse(error: ApiError, scope: Scope, receive: Receive, sender: _Sender) -> None:
    """If the answer has already begun, it ends here, incomplete."""
    if not sender.status:
        await error.response()(scope, receive, sender)


def _limited(receive: Receive, most: int) -> Receive:
    """Read at most this many bytes, whatever the Content-Length says."""
    size = 0
    is_whole = False

    async def read() -> Message:
        nonlocal size, is_whole
        if is_whole:
            return await receive()
        try:
            async with asyncio.timeout(_BODY_SECONDS):
                message = await receive()
        except TimeoutError:
            raise ApiError(408, "the body did not arrive in time", code="timeout") from None
        if message["type"] == "http.request":
            size += len(message.get("body", b""))
            is_whole = not message.get("more_body", False)
        if size > most:
            raise _too_large(most)
        return message

    return read


def _too_large(most: int) -> ApiError:
    return ApiError(413, f"the body is larger than {most:,} bytes", code="request_too_large")
