"""What the service answers when it refuses: OpenAI's error shape, with the status of HTTP."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from starlette.responses import JSONResponse

from trafo.errors import TrafoError


class ApiError(Exception):
    """A refusal: status, what is wrong, which field, and OpenAI's code for it."""

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


def from_validation(error: ValidationError) -> ApiError:
    """The first thing that is wrong with a body, by its field's name."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return ApiError(400, "the body is not JSON", code="invalid_json")
    name = ".".join(str(part) for part in first["loc"] if not _is_branch(part)) or None
    if first["type"] == "extra_forbidden":
        return ApiError(400, f"{name} is not supported", param=name, code="unsupported_parameter")
    said = first["msg"].removeprefix("Value error, ")
    message = f"{name}: {said[:1].lower()}{said[1:]}"
    return ApiError(400, message, param=name, code="invalid_value")


def _is_branch(part: object) -> bool:
    """Pydantic names the branch of a union, such as `list[str]`, which no client wrote."""
    return isinstance(part, str) and ("[" in part or part in ("str", "int"))


def from_trafo(error: TrafoError, param: str | None = None) -> ApiError:
    """An error of the library: what is wrong, and what would be right."""
    return ApiError(400, str(error), param=param, code="invalid_value")
