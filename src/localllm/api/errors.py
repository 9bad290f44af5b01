"""From an error to the HTTP answer that a client can act on: status, body and retry headers.

Every answer of the port that is not a success is made here, the router's own 404 and 405 included, so that the body
is always ``{"error": {"message", "type", "param", "code"}}``. A 5xx means that this service is at fault (routers
fail over on it) and is never used for a bad request. Errors that only exist in HTTP are defined here too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping

import msgspec
from starlette.exceptions import HTTPException
from starlette.responses import Response

from localllm.core import errors
from localllm.core.anthropic import AnthropicError, AnthropicErrorBody
from localllm.core.errors import LocalLLMError
from localllm.core.ollama_api import OllamaError


class HTTPError(errors.ServiceError):
    """An error of the transport, not of what was asked."""

    code = "http_error"


class MethodNotAllowed(HTTPError):
    """``allow`` are the methods that the path does take, as the Allow header has them."""

    code = "method_not_allowed"

    def __init__(self, allow: str) -> None:
        super().__init__(
            "This path does not take this method.", hint=f"It takes: {allow}.", details={"allow": allow}
        )


class BodyTooLarge(HTTPError):
    """The request's body is larger than the port takes."""

    code = "request_too_large"

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(
            f"The request body is larger than {limit_bytes} bytes.", details={"limit_bytes": limit_bytes}
        )


class UnsupportedMediaType(HTTPError):
    """The body is not JSON, or is packed in a way the port does not know."""

    code = "unsupported_media_type"


class RequestTimeout(HTTPError):
    """The client took too long to send its request."""

    code = "request_timeout"


# The status of a class is that of its nearest listed ancestor.
STATUS: Mapping[type[LocalLLMError], int] = {
    LocalLLMError: 500,
    errors.ConfigError: 400,
    errors.HardwareError: 500,
    errors.HubError: 502,
    errors.ModelNotFound: 404,
    errors.ModelAmbiguous: 400,
    errors.ModelInUse: 409,
    errors.Gated: 403,
    errors.Offline: 503,
    errors.DiskFull: 507,
    errors.BadName: 400,
    errors.StoreCorrupt: 500,
    errors.GGUFError: 400,
    errors.PlanError: 503,
    errors.EngineError: 500,
    errors.EngineUnavailable: 503,
    errors.LoadFailed: 503,
    errors.ModelChanged: 409,
    errors.ContextLengthExceeded: 400,
    errors.BadRequest: 400,
    errors.EngineStalled: 504,
    errors.Cancelled: 503,
    errors.LimitError: 429,
    errors.ServiceError: 500,
    errors.Unauthorized: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.AlreadyRunning: 409,
    errors.ShuttingDown: 503,
    HTTPError: 400,
    MethodNotAllowed: 405,
    RequestTimeout: 408,
    BodyTooLarge: 413,
    UnsupportedMediaType: 415,
}

# Sending the same request again would meet (or cause) the same failure: SDKs must not replay it by themselves.
_POINTLESS_TO_RETRY: tuple[type[LocalLLMError], ...] = (
    errors.EngineCrashed,
    errors.EngineStalled,
    errors.EngineUnavailable,
    errors.LoadFailed,
    errors.PlanError,
    errors.QuotaExceeded,
    errors.ModelChanged,
    errors.Conflict,
    errors.ModelInUse,
    errors.StoreCorrupt,
    errors.DiskFull,
)

_RETRY_WHEN_RESTARTED_S = 2.0
_PATH_IN_VALIDATION_ERROR = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)


def status_of(error: LocalLLMError) -> int:
    """HTTP status of an error, by its class."""
    for cls in type(error).__mro__:
        if issubclass(cls, LocalLLMError) and cls in STATUS:
            return STATUS[cls]
    return 500


def type_of(error: LocalLLMError) -> str:
    """OpenAI's coarse ``type`` of an error."""
    status = status_of(error)
    if isinstance(error, errors.QuotaExceeded):
        return "insufficient_quota"
    if status == 401:
        return "authentication_error"
    if status == 403:
        return "permission_error"
    if status == 429:
        return "rate_limit_error"
    return "server_error" if status >= 500 else "invalid_request_error"


def as_error(exc: BaseException) -> LocalLLMError:
    """Any exception as one that can be answered; what nobody foresaw becomes a plain ``internal_error``.

    The text of an unforeseen exception stays out of the answer: it may hold paths or prompt text. Log it.
    """
    if isinstance(exc, LocalLLMError):
        return exc
    if isinstance(exc, msgspec.ValidationError):
        return from_validation_error(exc)
    if isinstance(exc, msgspec.DecodeError | RecursionError):
        return errors.BadRequest("The request body is not valid JSON.")
    if isinstance(exc, HTTPException):
        if exc.status_code == 404:
            return errors.NotFound("There is nothing at this path.")
        if exc.status_code == 405:
            return MethodNotAllowed((exc.headers or {}).get("Allow", ""))
        return errors.BadRequest(exc.detail) if exc.status_code < 500 else LocalLLMError(exc.detail)
    return LocalLLMError(
        "Something went wrong inside localllm.", hint="The log has the details: localllm logs"
    )


def from_validation_error(exc: msgspec.ValidationError) -> errors.BadRequest:
    """A field of the wrong type or out of its range, as a 400 that names the field."""
    found = _PATH_IN_VALIDATION_ERROR.match(str(exc))
    what, path = (found["what"], found["path"]) if found else (str(exc), None)
    param = path.lstrip(".").replace("[...]", "") if path else None
    missing = re.search(r"missing required field `(.+)`", what)
    if missing:
        param = f"{param}.{missing[1]}" if param else missing[1]
        return errors.BadRequest(f"Missing required parameter: {param}.", param=param)
    return errors.BadRequest(f"Invalid value for {param}: {what}." if param else f"{what}.", param=param)


def error_object(error: LocalLLMError, *, hint_in_message: bool = False) -> dict[str, object]:
    """The ``error`` object of a body or of a stream's last event.

    ``hint_in_message`` is the form for ``/v1``: the hint joins the message, since OpenAI's clients show nothing else
    to their user, and the engine's log stays out.
    """
    message = error.message
    if hint_in_message and error.hint:
        message = f"{message} {error.hint}"
    body: dict[str, object] = {
        "message": message,
        "type": type_of(error),
        "param": error.param,
        "code": error.code,
    }
    if error.hint:
        body["hint"] = error.hint
    details = _for_clients(error.details) if hint_in_message else error.details
    if details:
        body["details"] = details
    return body


def _for_clients(details: Mapping[str, object]) -> dict[str, object]:
    """Without the engine's log: it names folders and files that are nobody's business outside this machine."""
    return {name: value for name, value in details.items() if name != "stderr_tail"}


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


def anthropic_error(error: LocalLLMError, request_id: str | None = None) -> AnthropicError:
    """The body that Anthropic's clients expect, hint and our code included."""
    status = status_of(error)
    kind = _ANTHROPIC_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    message = str(error_object(error, hint_in_message=True)["message"])
    return AnthropicError(
        error=AnthropicErrorBody(type=kind, message=message, code=error.code), request_id=request_id
    )


def ollama_error(error: LocalLLMError) -> OllamaError:
    """The body that Ollama's clients expect: a sentence."""
    return OllamaError(str(error_object(error, hint_in_message=True)["message"]))


def error_headers(error: LocalLLMError) -> dict[str, str]:
    """``Retry-After``, ``x-should-retry`` and ``Allow`` where they apply."""
    headers: dict[str, str] = {}
    retry_after_s: float | None = None
    if isinstance(error, errors.LimitError):
        retry_after_s = error.retry_after_s
    elif isinstance(error, errors.ShuttingDown):
        retry_after_s = _RETRY_WHEN_RESTARTED_S
    if retry_after_s is not None:
        headers["retry-after"] = str(max(1, math.ceil(retry_after_s)))
        headers["retry-after-ms"] = str(max(1, math.ceil(retry_after_s * 1000)))
    if isinstance(error, _POINTLESS_TO_RETRY):
        headers["x-should-retry"] = "false"
    elif isinstance(error, errors.RateLimited):
        headers["x-should-retry"] = "true"
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = str(error.details.get("allow", ""))
    if isinstance(error, errors.Unauthorized):
        headers["www-authenticate"] = "Bearer"
    return headers


def error_response(
    exc: BaseException,
    *,
    hint_in_message: bool = False,
    form: Callable[[LocalLLMError], object] | None = None,
) -> Response:
    """The HTTP answer for any exception; ``form`` makes another body than OpenAI's."""
    error = as_error(exc)
    body: object = {"error": error_object(error, hint_in_message=hint_in_message)}
    return Response(
        _encode(form(error) if form else body),
        status_code=status_of(error),
        headers={"cache-control": "no-store", **error_headers(error)},
        media_type="application/json",
    )


def _encode(body: object) -> bytes:
    # details may hold anything an engine put there; an error answer must never fail itself
    return msgspec.json.encode(body, enc_hook=str)
