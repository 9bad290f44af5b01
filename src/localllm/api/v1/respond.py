"""From a generation that is about to run to its HTTP answer, streamed or whole.

Both read the engine's events as a stream and both watch the client meanwhile, so that one that leaves frees its place
at once. Starlette calls an answer as an ASGI application, which is what gives it ``receive``.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing

import msgspec
from msgspec import Struct
from starlette.types import Receive, Scope, Send

from localllm.api.connection import ClientLeft, while_connected
from localllm.api.errors import as_error
from localllm.api.sse import EventStream, SlowReader
from localllm.api.v1.guard import AnswerGuard
from localllm.api.v1.reply import Chunks, Collector
from localllm.core.config import ServerSettings
from localllm.core.errors import LocalLLMError
from localllm.core.generation import Event, Finished, Started, Usage

log = logging.getLogger(__name__)

# Events whose frames a client can do nothing with before the next one comes.
_SAYS_NOTHING = frozenset({Started, Finished, Usage})

CONTEXT_HEADER = "x-localllm-context"


class Generation(Struct, frozen=True, kw_only=True):
    """One answer to make. ``prepare`` runs first (a model to load in a certain form), ``guard`` judges the end."""

    events: AsyncGenerator[Event, None]
    headers: Mapping[str, str]
    prepare: Callable[[], Awaitable[None]] | None = None
    guard: AnswerGuard | None = None


class StreamedAnswer:
    def __init__(
        self, generation: Generation, chunks: Chunks, settings: ServerSettings, *, lines: bool = False
    ) -> None:
        self._lines = lines
        self._generation = generation
        self._chunks = chunks
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        stream = EventStream(
            send,
            self._generation.headers,
            ping_s=self._settings.sse_ping_seconds,
            stall_s=self._settings.slow_reader_seconds,
            lines=self._lines,
        )
        try:
            await while_connected(receive, self._run(stream), stream.keep_alive())
        except ClientLeft:
            return
        except SlowReader:
            log.warning("a client stopped reading its stream; it was given up", extra={"path": scope["path"]})

    async def _run(self, stream: EventStream) -> None:
        try:
            await self._send_events(stream)
        except Exception as error:
            if not stream.opened:
                raise  # nothing was sent yet: it gets a real status
            if not isinstance(error, LocalLLMError):
                log.exception("a stream failed")
            await stream.close(self._chunks.failing(as_error(error)))
        else:
            await stream.close(self._chunks.ending())

    async def _send_events(self, stream: EventStream) -> None:
        generation, chunks, guard = self._generation, self._chunks, self._generation.guard
        if generation.prepare is not None:
            await generation.prepare()
        async with aclosing(generation.events) as events:
            async for event in events:
                if guard is not None:
                    guard(event)
                if type(event) is Started and event.prompt_tokens is not None and not stream.opened:
                    stream.headers[CONTEXT_HEADER] = context_used(event.prompt_tokens, event.context_length)
                frame = chunks(event)
                if type(event) in _SAYS_NOTHING:
                    stream.hold(frame)
                elif frame:
                    await stream.write(frame)


class WholeAnswer:
    def __init__(self, generation: Generation, collector: Collector) -> None:
        self._generation = generation
        self._collector = collector

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            body, headers = await while_connected(receive, self._run())
        except ClientLeft:
            return
        await send_json(send, body, headers)

    async def _run(self) -> tuple[bytes, dict[str, str]]:
        generation, collector, guard = self._generation, self._collector, self._generation.guard
        headers = dict(generation.headers)
        context_length = 0
        if generation.prepare is not None:
            await generation.prepare()
        async with aclosing(generation.events) as events:
            async for event in events:
                if guard is not None:
                    guard(event)
                if type(event) is Started:
                    context_length = event.context_length
                if type(event) is Started and event.prompt_tokens is not None:
                    headers[CONTEXT_HEADER] = context_used(event.prompt_tokens, context_length)
                elif type(event) is Usage:  # of an engine that counts only at the end
                    headers.setdefault(CONTEXT_HEADER, context_used(event.prompt_tokens, context_length))
                collector(event)
        return msgspec.json.encode(collector.reply()), headers


async def send_json(send: Send, body: bytes, headers: Mapping[str, str]) -> None:
    """Send a whole 200 answer."""
    encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in headers.items()]
    start = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
        *encoded,
    ]
    await send({"type": "http.response.start", "status": 200, "headers": start})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def context_used(prompt_tokens: int, context_length: int) -> str:
    """``used/limit`` in tokens: the prompt, and what one sequence has."""
    return f"{prompt_tokens}/{context_length}"
