"""Refusals, as OpenAI's error objects with an HTTP status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from trafo.errors import TrafoError


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
        self.status = status
        self.param = param
        self.code = code
        self.retry_after = retry_after

    def content(self) -> dict[str, Any]:
        """The body of the answer."""
        return {
            "error": {
                "message": str(self),
                "type": _TYPES.get(self.status, "invalid_request_error"),
                "param": self.param,
                "code": self.code,
            }
        }

    def response(self) -> JSONResponse:
        """The answer."""
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.content(), self.status, headers)


_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    429: "rate_limit_error",
    500: "server_error",
    503: "server_error",
    504: "timeout_error",
}


def invalid(message: str, param: str | None) -> ApiError:
    """A field has a wrong value."""
    return ApiError(400, message, param=param, code="invalid_value")


def queue_full() -> ApiError:
    """The queue is full."""
    what = "too many requests are waiting; try again later"
    return ApiError(429, what, code="queue_full", retry_after=1)


def shutting_down() -> ApiError:
    """The service is about to end."""
    what = "the server is shutting down"
    return ApiError(503, what, code="shutting_down", retry_after=5)


def failed() -> ApiError:
    """A bug; its traceback is printed."""
    return ApiError(500, "the request failed; see the server's messages")


MAX_HEADER_BYTES = 65_536


def header_too_large() -> ApiError:
    """The header of a request, its address included."""
    what = f"the header is larger than {MAX_HEADER_BYTES:,} bytes"
    return ApiError(431, what, code="header_too_large")


def client_gone() -> ApiError:
    """Nobody waits for the answer; no client sees this one."""
    return ApiError(499, "the client has gone away")


def timed_out(seconds: float) -> ApiError:
    """The time of a request is over."""
    return ApiError(504, f"the request took longer than {seconds:g} seconds", code="timeout")


@contextmanager
def refusing(param: str) -> Iterator[None]:
    """Errors of the library in the block become refusals of a field."""
    try:
        yield
    except TrafoError as error:
        raise invalid(str(error), param) from None


def from_validation(error: ValidationError) -> ApiError:
    """The first error in a body, by the name of its field."""
    first = error.errors(include_url=False, include_context=False, include_input=False)[0]
    if first["type"] == "json_invalid":
        return ApiError(400, "the body is not JSON", code="invalid_json")
    name = ".".join(str(part) for part in first["loc"] if not _is_branch(part)) or None
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{name} is not supported", param=name, code="unsupported_parameter")
    said = first["msg"].removeprefix("Value error, ")
    return invalid(f"{name}: {said[:1].lower()}{said[1:]}", name)


def _is_branch(part: object) -> bool:
    """Pydantic also names the branch of a union, such as `list[str]`."""
    return isinstance(part, str) and ("[" in part or part in ("str", "int"))
