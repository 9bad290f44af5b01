"""The outermost layer of the port: every request gets an id, and every failure an answer in the port's form."""

from __future__ import annotations

import logging
import re
import time
import uuid
from collections.abc import Callable
from functools import partial

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from localllm.api.errors import anthropic_error, as_error, error_response, ollama_error, status_of
from localllm.core.errors import LocalLLMError

log = logging.getLogger(__name__)

CONTROL_PREFIX = "/localllm"
_SLASHES = re.compile("/{2,}")


class Boundary:
    """Wraps the whole application; nothing is raised past it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{uuid.uuid4().hex}"
        scope["path"] = tidy_path(scope["path"])
        said: dict[str, str] = {}  # filled by the gateway's policies, with answers and refusals alike
        scope.setdefault("state", {}).update(request_id=request_id, received=time.monotonic(), headers=said)
        started = False

        async def send_named(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers["x-request-id"] = request_id
                if is_anthropic(scope["path"]):
                    headers["request-id"] = request_id
                for name, value in said.items():
                    headers[name] = value
            await send(message)

        try:
            await self._app(scope, receive, send_named)
        except ClientDisconnect:
            return
        except Exception as error:
            status = status_of(as_error(error))
            if not isinstance(error, LocalLLMError) and status >= 500:
                log.exception("request failed", extra={"request_id": request_id, "path": scope["path"]})
            if started:
                raise
            answer = error_response(
                error,
                hint_in_message=not is_control(scope["path"]),
                form=error_form(scope["path"], request_id),
            )
            if status in (408, 413):
                answer.headers["connection"] = "close"  # the rest of the body is not worth reading
            await answer(scope, receive, send_named)


def tidy_path(path: str) -> str:
    """``//`` is ``/`` and a trailing slash is dropped: base URLs are often written with one too many."""
    path = _SLASHES.sub("/", path)
    return path.rstrip("/") or "/"


def is_control(path: str) -> bool:
    return path == CONTROL_PREFIX or path.startswith(f"{CONTROL_PREFIX}/")


def is_anthropic(path: str) -> bool:
    """Whether whoever asks for this path speaks Anthropic's API, and expects its errors."""
    return path.removeprefix("/v1") in ("/messages", "/messages/count_tokens")


def error_form(path: str, request_id: str) -> Callable[[LocalLLMError], object] | None:
    """How whoever asks for this path expects errors; None: as OpenAI's clients do."""
    if is_anthropic(path):
        return partial(anthropic_error, request_id=request_id)
    if path.startswith("/api/"):
        return ollama_error
    return None


def header(scope: Scope, name: str) -> str | None:
    """A request header, or None; of several, the first."""
    return Headers(scope=scope).get(name)
