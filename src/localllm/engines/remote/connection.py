"""HTTP to one remote: requests, server-sent events, and what it refuses or breaks as our errors."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

import httpx
import msgspec

from localllm.core.errors import (
    BadRequest,
    ContextLengthExceeded,
    EngineStalled,
    EngineUnavailable,
    GenerationFailed,
    LocalLLMError,
    ModelNotFound,
    QueueFull,
    RateLimited,
)
from localllm.engines.remote.target import Target
from localllm.engines.remote.wire import WireError, error_decoder

T = TypeVar("T")
_PROBE_S = 5.0
_SHOWN_CHARACTERS = 200
_CONTEXT_CODES = frozenset({"context_length_exceeded", "exceed_context_size_error"})
_CONTEXT_WORDS = re.compile(r"maximum context length is (\d+)|context (?:length|window|size)", re.IGNORECASE)
"""vLLM, SGLang and others have no code for a prompt that is too long; this one edge knows their words."""


class Connection:
    def __init__(self, target: Target) -> None:
        self.target = target
        self._client = httpx.AsyncClient(
            base_url=target.base_url.rstrip("/"),
            headers=target.headers,
            timeout=httpx.Timeout(None, connect=target.connect_timeout_s),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=16),
            follow_redirects=False,
        )

    async def get(self, path: str, shape: type[T], *, within_s: float = _PROBE_S) -> T:
        """Raises EngineUnavailable, EngineStalled, or what the remote's refusal means."""
        return _decoded(await self._ask("GET", path, None, within_s), shape)

    async def post(self, path: str, body: Mapping[str, object], shape: type[T], *, within_s: float) -> T:
        return _decoded(await self._ask("POST", path, msgspec.json.encode(body), within_s), shape)

    @asynccontextmanager
    async def stream(self, path: str, body: Mapping[str, object]) -> AsyncIterator[AsyncIterator[bytes]]:
        """The data of each event, until ``[DONE]``. Leaving early closes the connection, so that the remote stops."""
        async with AsyncExitStack() as stack:
            async with self.within(self.target.first_token_timeout_s):
                answer = await stack.enter_async_context(
                    self._client.stream(
                        "POST", path, content=msgspec.json.encode(body), headers=self._headers()
                    )
                )
                if answer.status_code != 200:
                    await answer.aread()
                    raise self.refusal(answer)
                kind = answer.headers.get("content-type", "")
                if not kind.startswith("text/event-stream"):
                    raise GenerationFailed(
                        f"The remote {self.target.name!r} sent {kind or 'something'} instead of a stream of events.",
                        hint=f"Is remotes.{self.target.name}.base_url the address of an OpenAI-compatible API?",
                    )
            yield _data(answer.aiter_lines())

    @asynccontextmanager
    async def within(self, seconds: float) -> AsyncIterator[None]:
        """Waiting for the remote: silence is a stall, a line that breaks is its failure."""
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError as error:
            raise EngineStalled(
                f"The remote {self.target.name!r} sent nothing for {seconds:.0f} s."
            ) from error
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol) as error:
            raise EngineUnavailable(
                f"The remote {self.target.name!r} does not answer at {self.target.base_url}.",
                hint=f"Start it, or correct remotes.{self.target.name}.base_url.",
            ) from error
        except httpx.HTTPError as error:
            raise GenerationFailed(
                f"The remote {self.target.name!r} broke off: {str(error) or type(error).__name__}."
            ) from error

    async def close(self) -> None:
        await self._client.aclose()

    async def _ask(self, method: str, path: str, content: bytes | None, within_s: float) -> httpx.Response:
        async with self.within(within_s):
            answer = await self._client.request(method, path, content=content, headers=self._headers())
        if answer.status_code != 200:
            raise self.refusal(answer)
        return answer

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json"}
        key = self.target.secret()
        return headers | ({"Authorization": f"Bearer {key}"} if key else {})

    def refusal(self, answer: httpx.Response) -> LocalLLMError:
        """An answer that is not 200 as the error that it means."""
        name, status = self.target.name, answer.status_code
        error = read_error(answer.content) or WireError(message=f"status {status}")
        said = f"The remote {name!r} says: {(error.message or f'status {status}')[:_SHOWN_CHARACTERS]}"
        if (too_long := _too_long(error, status, self.target.context_length)) is not None:
            return too_long
        if status in (401, 403):
            return EngineUnavailable(said, hint=f"Check the key of remotes.{name}.")
        if status == 404:
            return ModelNotFound(name, hint=said)
        if status == 429:
            retry_after_s = _seconds(answer.headers.get("retry-after"))
            kind = QueueFull if error.code == QueueFull.code else RateLimited
            return kind(said, retry_after_s=retry_after_s)
        if status in (502, 503, 504):
            return EngineUnavailable(said, hint="Try again later.")
        if 400 <= status < 500:
            return BadRequest(said, param=error.param)
        return GenerationFailed(said)

    def failure(self, error: WireError | str) -> LocalLLMError:
        """An error that came inside a stream."""
        found = WireError(message=error) if isinstance(error, str) else error
        too_long = _too_long(found, 400, self.target.context_length)
        return too_long or GenerationFailed(
            f"The remote {self.target.name!r} says: {(found.message or 'it failed')[:_SHOWN_CHARACTERS]}"
        )


async def _data(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for line in lines:
        if line.startswith("data:"):
            data = line[5:].strip()
            if data == "[DONE]":
                return
            yield data.encode()


def read_error(content: bytes) -> WireError | None:
    """The error in a body, in any of the forms that servers use; None when it is no JSON of theirs (HTML, say)."""
    try:
        body = error_decoder.decode(content)
    except msgspec.DecodeError:
        return None
    if isinstance(body.error, WireError):
        return body.error
    text = body.error or body.message or (str(body.detail) if body.detail is not None else None)
    return WireError(message=text, type=body.type, code=body.code)


def _too_long(error: WireError, status: int, known: int | None) -> ContextLengthExceeded | None:
    named = error.code in _CONTEXT_CODES or error.type in _CONTEXT_CODES
    words = _CONTEXT_WORDS.search(error.message or "")
    if not named and not (status in (400, 413) and words):
        return None
    length = (
        error.n_ctx or error.context_length or (int(words[1]) if words and words[1] else None) or known or 0
    )
    return ContextLengthExceeded(error.n_prompt_tokens or error.prompt_tokens, length)


def _decoded(answer: httpx.Response, shape: type[T]) -> T:
    try:
        return msgspec.json.decode(answer.content, type=shape)
    except msgspec.DecodeError as error:
        raise GenerationFailed(
            f"The remote's answer at {answer.url.path} is not its API's: {error}."
        ) from error


def _seconds(text: str | None) -> float | None:
    try:
        return float(text) if text is not None else None
    except ValueError:
        return None
