"""Reading typed bodies and parameters, writing typed answers and event streams: the same few lines for every route."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from localllm.api.body import read_json
from localllm.core.errors import BadRequest

T = TypeVar("T")

MAX_BODY_BYTES = 16 << 20
_PING = b": ping\n\n"
_STREAM_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


async def read(request: Request, shape: type[T]) -> T:
    """The body as ``shape``. Raises BadRequest (by way of msgspec's ValidationError) naming the field at fault."""
    body = await read_json(request, limit_bytes=MAX_BODY_BYTES, image_limit_bytes=MAX_BODY_BYTES)
    return msgspec.convert(body, shape)


def answer(value: object) -> Response:
    return Response(
        msgspec.json.encode(value), media_type="application/json", headers={"cache-control": "no-store"}
    )


def text(content: str, media_type: str = "text/plain") -> Response:
    return Response(content, media_type=f"{media_type}; charset=utf-8", headers={"cache-control": "no-store"})


def stream(events: AsyncGenerator[tuple[str, object] | None, None]) -> Response:
    """Named server-sent events; None is a sign of life. The generator is closed when the client leaves."""

    async def frames() -> AsyncIterator[bytes]:
        async with aclosing(events) as open_events:
            async for event in open_events:
                yield _PING if event is None else frame(*event)

    return StreamingResponse(frames(), media_type="text/event-stream", headers=_STREAM_HEADERS)


def frame(name: str, value: object) -> bytes:
    return b"event: " + name.encode() + b"\ndata: " + msgspec.json.encode(value) + b"\n\n"


def number(request: Request, name: str, kind: type[T], default: T | None, low: T, high: T) -> T | None:
    """A number from the query, within its range.

    Raises:
        BadRequest: not a number, or out of range.
    """
    raw = request.query_params.get(name)
    if raw is None or raw == "":
        return default
    try:
        value = msgspec.convert(raw, kind, strict=False)
    except msgspec.ValidationError:
        value = None
    if value is None or not low <= value <= high:  # type: ignore[operator]
        raise BadRequest(f"{name} must be a number from {low} to {high}.", param=name)
    return value


def flag(request: Request, name: str) -> bool:
    return request.query_params.get(name, "").lower() in ("1", "true", "yes")
