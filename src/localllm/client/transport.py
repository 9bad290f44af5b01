"""One HTTP connection to a service: typed answers, and failures as the errors they were on the other side."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import httpx
import msgspec

from localllm.client.sse import ServerSentEvent, decode
from localllm.core.errors import LocalLLMError, NotRunning, ServiceError, from_code

T = TypeVar("T")

# Loading a model or draining takes as long as it takes; the service itself has deadlines for those.
_QUICK = httpx.Timeout(30.0, connect=5.0)
PATIENT = httpx.Timeout(None, connect=5.0)
# A stream says at least every 15 s that it is alive.
_STREAM = httpx.Timeout(None, connect=5.0, read=60.0)


class _ErrorBody(msgspec.Struct):
    message: str = "The service answered with an error."
    code: str | None = None
    param: str | None = None
    hint: str | None = None
    details: dict[str, Any] = {}


class _Failure(msgspec.Struct):
    error: _ErrorBody


class Transport:
    """``base_url`` like ``http://127.0.0.1:11500``; ``key`` is the admin key."""

    def __init__(self, base_url: str, key: str | None) -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        # no proxy: the service is on this machine, or named by the person
        self._http = httpx.AsyncClient(base_url=base_url, headers=headers, timeout=_QUICK, trust_env=False)
        self.base_url = base_url

    async def call(
        self,
        shape: type[T],
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, object] | None = None,
        timeout: httpx.Timeout = _QUICK,
    ) -> T:
        """One request and its answer as ``shape``.

        Raises:
            LocalLLMError: what the service answered, as the class its code names.
            NotRunning: nothing answers there.
        """
        return _decoded(await self._send(method, path, body=body, query=query, timeout=timeout), shape)

    async def text(self, path: str, *, query: Mapping[str, object] | None = None) -> str:
        return (await self._send("GET", path, query=query)).decode("utf-8", "replace")

    async def events(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, object] | None = None,
    ) -> AsyncGenerator[ServerSentEvent, None]:
        """The events of a stream until it ends. Raises as ``call``."""
        async with self._open(method, path, body=body, query=query) as response:
            if response.status_code >= 400:
                raise failure(response.status_code, await response.aread())
            async for event in decode(response.aiter_bytes()):
                yield event

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _send(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        query: Mapping[str, object] | None = None,
        timeout: httpx.Timeout = _QUICK,
    ) -> bytes:
        try:
            response = await self._http.request(
                method, path, content=_encoded(body), params=_query(query), headers=_JSON, timeout=timeout
            )
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error
        if response.status_code >= 400:
            raise failure(response.status_code, response.content)
        return response.content

    @asynccontextmanager
    async def _open(
        self, method: str, path: str, *, body: object, query: Mapping[str, object] | None
    ) -> AsyncGenerator[httpx.Response, None]:
        request = self._http.build_request(
            method, path, content=_encoded(body), params=_query(query), headers=_JSON, timeout=_STREAM
        )
        try:
            response = await self._http.send(request, stream=True)
            try:
                yield response
            finally:
                await response.aclose()
        except httpx.HTTPError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: httpx.HTTPError) -> LocalLLMError:
        if isinstance(error, httpx.ReadTimeout):
            return ServiceError(f"The service at {self.base_url} does not answer in time.")
        if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
            return NotRunning(
                f"No localllm service answers at {self.base_url}.", hint="Start it with: localllm start"
            )
        return NotRunning(
            f"The connection to {self.base_url} was lost.", hint="Is it still up? localllm status"
        )


_JSON = {"content-type": "application/json"}


def failure(status: int, content: bytes) -> LocalLLMError:
    """The error that an answer carries; one that is not ours becomes a ServiceError with its status."""
    try:
        body = msgspec.json.decode(content, type=_Failure).error
    except msgspec.MsgspecError:
        return ServiceError(f"Not a localllm service? It answered with status {status}.")
    return from_code(
        body.code or "service_error", body.message, hint=body.hint, param=body.param, details=body.details
    )


def decode_error(content: str) -> LocalLLMError:
    """The error object of an event, as the error it was."""
    try:
        body = msgspec.json.decode(content, type=_ErrorBody)
    except msgspec.MsgspecError:
        return ServiceError("The service ended the stream with an error.")
    return from_code(
        body.code or "service_error", body.message, hint=body.hint, param=body.param, details=body.details
    )


def _decoded(content: bytes, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(content, type=shape)
    except msgspec.MsgspecError as error:
        raise ServiceError(
            "The service's answer was not understood.",
            hint="It may be of another version: localllm restart",
        ) from error


def _encoded(body: object) -> bytes | None:
    return None if body is None else msgspec.json.encode(body)


def _query(query: Mapping[str, object] | None) -> dict[str, str]:
    return {name: str(value) for name, value in (query or {}).items() if value is not None}
