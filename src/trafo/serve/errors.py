"""Refusals, as OpenAI's error objects with an HTTP status, and messages to the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from trafo.errors import TrafoError
from trafo.runtime.console import say

MAX_HEADER_BYTES = 65_536

_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    504: "timeout_error",
}


class ApiError(Exception):
    """A refusal: HTTP status, message, field, and OpenAI's code for it."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.param, self.code, self.retry_after = status, param, code, retry_after

    def content(self) -> dict[str, Any]:
        """Return the body of the answer."""
        kind = _TYPES.get(self.status, "invalid_request_error")
        error = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": error}

    def response(self) -> JSONResponse:
        """Return the answer."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.content(), self.status, headers)


def invalid(message: str, param: str | None) -> ApiError:
    """A field has a wrong value."""
    return ApiError(400, message, param=param, code="invalid_value")


def too_large(what: str) -> ApiError:
    """The body is larger than allowed."""
    return ApiError(413, f"the body {what}", code="request_too_large")


def header_too_large() -> ApiError:
    """The header of a request, its address included, is larger than allowed."""
    what = f"the header is larger than {MAX_HEADER_BYTES:,} bytes"
    return ApiError(431, what, code="header_too_large")


def queue_full() -> ApiError:
    """Too many requests are waiting."""
    what = "too many requests are waiting; try again later"
    return ApiError(429, what, code="queue_full", retry_after=1)


def client_gone() -> ApiError:
    """Nobody waits for the answer, so no client sees this one."""
    return ApiError(499, "the client has gone away")


def failed() -> ApiError:
    """A bug, whose traceback is printed."""
    return ApiError(500, "the request failed; see the server's messages")


def shutting_down() -> ApiError:
    """The service is about to end."""
    what = "the server is shutting down"
    return ApiError(503, what, code="shutting_down", retry_after=5)


def timed_out(seconds: float) -> ApiError:
    """The time of a request is over."""
    return ApiError(504, f"the request took longer than {seconds:g} seconds", code="timeout")


@contextmanager
def refusing(param: str) -> Iterator[None]:
    """Turn errors of the library in the block into refusals of a field."""
    try:
        yield
    except TrafoError as error:
        raise invalid(str(error), param) from None


def from_validation(error: ValidationError) -> ApiError:
    """Describe the first error in a body by the name of its field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return ApiError(400, "the body is not JSON", code="invalid_json")
    name = ".".join(str(part) for part in first["loc"] if not _is_branch(part)) or None
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{name} is not supported", param=name, code="unsupported_parameter")
    message = first["msg"].removeprefix("Value error, ")
    return invalid(f"{name}: {message[:1].lower()}{message[1:]}", name)


def _is_branch(part: object) -> bool:
    """Pydantic also names the branch of a union, such as `list[str]`."""
    return isinstance(part, str) and ("[" in part or part in ("str", "int"))


def print_message(text: str) -> None:
    """Print a message; a full disk or a closed pipe does not stop the service."""
    with suppress(OSError):
        say(text)
