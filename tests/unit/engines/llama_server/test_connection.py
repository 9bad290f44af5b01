from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.errors import BadRequest, ContextLengthExceeded, EngineError, GenerationFailed, Unsupported
from localllm.engines.llama_server.connection import Connection, error_from, server_sent_data
from localllm.engines.llama_server.wire import Content

STREAM = b': a comment\n\ndata: {"a": "\xc3\xa9"}\n\ndata: {"b": 1}\n\nid: 3\ndata: {"c": 2}\n\ndata: [DONE]\n\nmore'
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def answering(*pieces: bytes) -> AsyncIterator[Connection]:
    """A server that answers every request with these bytes and closes."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield Connection(f"http://127.0.0.1:{port}", "key")


async def of(pieces: list[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_events_are_whole_however_the_network_cuts_them(cuts: list[int]) -> None:
    at = [0, *sorted(cuts), len(STREAM)]

    async def read() -> list[bytes]:
        pieces = [STREAM[a:b] for a, b in itertools.pairwise(at)]
        return [data async for data in server_sent_data(of(pieces))]

    assert asyncio.run(read()) == ['{"a": "é"}'.encode(), b'{"b": 1}', b'{"c": 2}']


async def test_chunked_and_counted_bodies_are_read() -> None:
    body = b'{"content": "hello"}'
    counted = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    halves = b"a\r\n" + body[:10] + b"\r\n", b"a;x=1\r\n" + body[10:] + b"\r\n0\r\n\r\n"
    chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n"
    until_close = b"HTTP/1.1 200 OK\r\n\r\n" + body
    for pieces in ((counted,), (chunked, *halves), (until_close,)):
        async with answering(*pieces) as connection:
            assert (await connection.get("/x", Content)).content == "hello"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    ],
)
async def test_an_answer_that_breaks_off_is_a_broken_connection(answer: bytes) -> None:
    async with answering(answer) as connection:
        with pytest.raises(ConnectionError):
            await connection.get("/x", Content)


async def test_nobody_there_is_a_broken_connection() -> None:
    async with answering() as connection:
        pass
    with pytest.raises(ConnectionError):
        await connection.get("/x", Content)


async def test_a_stream_that_begins_with_an_error_raises_it() -> None:
    body = b'{"error": {"code": 501, "message": "no", "type": "not_supported_error"}}'
    async with answering(
        b"HTTP/1.1 501 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    ) as connection:
        with pytest.raises(Unsupported):
            async with connection.stream("/x", {}):
                pass


@pytest.mark.parametrize(
    ("status", "error", "expected"),
    [
        (400, {"message": "long", "n_prompt_tokens": 9, "n_ctx": 8}, ContextLengthExceeded),
        (400, {"message": "bad"}, BadRequest),
        (501, {"message": "no"}, Unsupported),
        (500, {"message": "oops"}, GenerationFailed),
    ],
)
def test_errors_are_told_apart_by_status_and_figures(
    status: int, error: dict[str, object], expected: type[EngineError]
) -> None:
    assert type(error_from(status, msgspec.json.encode({"error": error}))) is expected
    assert type(error_from(502, b"<html>")) is GenerationFailed
