"""The HTTP side of one llama-server: requests, server-sent events and its errors as ours.

Written on asyncio's streams because it stands in the way of every first token: httpx needs 2 to 3 ms of processor time
per request here, this 0.3 ms. It only has to talk to our own child on this machine: HTTP/1.1, one request per
connection, no redirects, no compression, no TLS.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from localllm.core.errors import (
    BadRequest,
    ContextLengthExceeded,
    EngineError,
    GenerationFailed,
    Unsupported,
)
from localllm.engines.llama_server.wire import ErrorBody, WireError

_DATA = b"data: "
_DONE = b"[DONE]"
_LONGEST_HEAD = 64 << 10
T = TypeVar("T")


class Connection:
    """Raises ``ConnectionError`` when the server is gone; whoever owns the process knows why.

    Every request has a connection of its own: an idle one would hold a thread of the server, and one that the server
    closes just as it is used again fails a request that nothing is wrong with.
    """

    def __init__(self, address: str, key: str) -> None:
        url = urlsplit(address)
        self._host = url.hostname or "127.0.0.1"
        self._port = url.port or 80
        self._headers = (
            f"Host: {url.netloc}\r\nAuthorization: Bearer {key}\r\n"
            "Content-Type: application/json\r\nConnection: close\r\n"
        )

    async def get(self, path: str, answer: type[T]) -> T:
        return await self._ask("GET", path, b"", answer)

    async def post(self, path: str, body: Mapping[str, object], answer: type[T]) -> T:
        return await self._ask("POST", path, msgspec.json.encode(body), answer)

    @asynccontextmanager
    async def stream(self, path: str, body: Mapping[str, object]) -> AsyncIterator[AsyncIterator[bytes]]:
        """The data of each event, as it comes, without the closing ``[DONE]``. Leaving early closes the connection,
        which is how the server learns that nobody wants the rest."""
        async with self._request("POST", path, msgspec.json.encode(body)) as response:
            if response.status != HTTPStatus.OK:
                raise error_from(response.status, await response.read())
            yield server_sent_data(response.pieces())

    async def _ask(self, method: str, path: str, body: bytes, answer: type[T]) -> T:
        async with self._request(method, path, body) as response:
            content = await response.read()
        if response.status != HTTPStatus.OK:
            raise error_from(response.status, content)
        return msgspec.json.decode(content, type=answer)

    @asynccontextmanager
    async def _request(self, method: str, path: str, body: bytes) -> AsyncIterator[_Response]:
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=_LONGEST_HEAD)
        try:
            head = f"{method} {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
            writer.write(head.encode("latin-1") + body)
            yield await _Response.begun(reader)
        finally:
            writer.close()


class _Response:
    def __init__(self, reader: asyncio.StreamReader, status: int, headers: Mapping[bytes, bytes]) -> None:
        self.status = status
        self._reader = reader
        self._chunked = headers.get(b"transfer-encoding", b"").lower() == b"chunked"
        self._length = int(headers[b"content-length"]) if b"content-length" in headers else None

    @classmethod
    async def begun(cls, reader: asyncio.StreamReader) -> _Response:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("llama-server closed the connection without an answer") from error
        status_line, *lines = head[:-4].split(b"\r\n")
        fields = (line.partition(b":") for line in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in fields}
        return cls(reader, int(status_line.split(b" ", 2)[1]), headers)

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body, in whatever pieces it comes."""
        try:
            if self._chunked:
                while size := int((await self._reader.readuntil(b"\r\n")).split(b";")[0], 16):
                    yield (await self._reader.readexactly(size + 2))[:-2]
            elif self._length is not None:
                yield await self._reader.readexactly(self._length)
            else:
                while piece := await self._reader.read(_LONGEST_HEAD):
                    yield piece
        except asyncio.IncompleteReadError as error:
            raise ConnectionResetError("llama-server broke off its answer") from error

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.pieces()])


async def server_sent_data(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The ``data`` of server-sent events out of pieces that may end anywhere."""
    rest = b""
    async for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(_DATA):
                data = line[len(_DATA) :]
                if data.startswith(_DONE):
                    return
                yield data


def error_from(status: int, body: bytes) -> EngineError:
    """llama-server's error answer as the error that it means."""
    try:
        error = msgspec.json.decode(body, type=ErrorBody).error
    except msgspec.DecodeError:
        error = WireError(message=f"llama-server answered with status {status}.")
    if error.n_prompt_tokens is not None and error.n_ctx is not None:
        return ContextLengthExceeded(error.n_prompt_tokens, error.n_ctx)
    if status == HTTPStatus.NOT_IMPLEMENTED:
        return Unsupported(error.message)
    if 400 <= status < 500:
        return BadRequest(error.message)
    return GenerationFailed(error.message)
