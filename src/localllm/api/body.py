"""Reading a request's body: under its caps while it arrives, and as JSON or not at all.

A body is untrusted until here: it may be endless, compressed a thousandfold, nested to exhaust the stack, or a form
that a foreign web page posts without asking (which is why only ``application/json`` is taken).
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import zlib
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any, Protocol

import msgspec
from starlette.requests import Request

from localllm.api.errors import BodyTooLarge, RequestTimeout, UnsupportedMediaType
from localllm.core.errors import BadRequest

MAX_NESTING = 64
SILENCE_S = 30.0
_PIECE = 1 << 16
_ZLIB_WINDOWS = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}


async def read_json(request: Request, *, limit_bytes: int, image_limit_bytes: int) -> dict[str, object]:
    """The body as a JSON object.

    ``limit_bytes`` holds for a body without images, ``image_limit_bytes`` for one with; both count the body as it is
    after decompression.

    Raises:
        UnsupportedMediaType: not JSON, or in an encoding we don't know.
        BodyTooLarge, RequestTimeout: while it arrives; what was read so far is dropped.
        BadRequest: not valid JSON, not an object, or nested deeper than ``MAX_NESTING``.
        ClientDisconnect: the client left before the end.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json":
        raise UnsupportedMediaType("The request body must be sent as content-type: application/json.")
    most = max(limit_bytes, image_limit_bytes)
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > most:
        raise BodyTooLarge(most)
    body = await _collect(_decoded(_received(request), request.headers.get("content-encoding", "")), most)
    if len(body) > limit_bytes and b'"image_url"' not in body:
        raise BodyTooLarge(limit_bytes)
    return parse_json_object(body)


def parse_json_object(body: bytes | bytearray) -> dict[str, object]:
    """Decode JSON text that must be an object. Raises BadRequest."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise BadRequest(f"The request body is not valid JSON: {reason}.") from error
    if not isinstance(value, dict):
        raise BadRequest("The request body must be a JSON object.")
    if body.count(b"{") + body.count(b"[") > MAX_NESTING:
        _refuse_deep(value)
    return value


def _refuse_deep(value: object) -> None:
    level: list[object] = [value]
    for _ in range(MAX_NESTING):
        level = [child for parent in level for child in _children(parent) if isinstance(child, dict | list)]
        if not level:
            return
    raise BadRequest(f"The request body is nested deeper than {MAX_NESTING} levels.")


def _children(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


async def _received(request: Request) -> AsyncIterator[bytes]:
    """The body's chunks; a client that sends nothing for ``SILENCE_S`` is told so."""
    chunks = aiter(request.stream())
    while True:
        try:
            async with asyncio.timeout(SILENCE_S):
                chunk = await anext(chunks)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise RequestTimeout(f"The request body stopped arriving for {SILENCE_S:.0f} s.") from error
        yield chunk


async def _decoded(chunks: AsyncIterator[bytes], encoding: str) -> AsyncIterator[bytes]:
    """Undo the body's content-encoding, at most ``_PIECE`` bytes at a time: a bomb meets the cap before memory."""
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        async for chunk in chunks:
            yield chunk
        return
    decoder = _decoder(encoding)
    try:
        async for chunk in chunks:
            for piece in decoder.feed(chunk):
                yield piece
    except (zlib.error, ValueError) as error:
        raise BadRequest(f"The request body is not valid {encoding}.") from error
    if not decoder.eof:
        raise BadRequest(f"The {encoding} request body ends too early.")


def _decoder(encoding: str) -> Decoder:
    if encoding in _ZLIB_WINDOWS:
        return _Zlib(_ZLIB_WINDOWS[encoding])
    if encoding == "zstd":
        # part of Python from 3.14 on, the same module as a package before
        home = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
        return _Zstd(importlib.import_module(home))
    raise UnsupportedMediaType(
        f"The content-encoding {encoding[:32]!r} is not supported; send gzip, deflate, zstd or none."
    )


class Decoder(Protocol):
    """Decompresses in bounded pieces. ``eof``: the compressed data has come to its own end."""

    @property
    def eof(self) -> bool: ...

    def feed(self, data: bytes) -> Iterator[bytes]: ...


class _Zlib:
    def __init__(self, window_bits: int) -> None:
        self._decoder = zlib.decompressobj(window_bits)

    @property
    def eof(self) -> bool:
        return self._decoder.eof

    def feed(self, data: bytes) -> Iterator[bytes]:
        while data and not self.eof:
            yield self._decoder.decompress(data, _PIECE)
            data = self._decoder.unconsumed_tail
        while rest := self._decoder.decompress(b"", _PIECE):
            yield rest


class _Zstd:
    def __init__(self, module: Any) -> None:
        self._decoder = module.ZstdDecompressor()
        self._broken = module.ZstdError

    @property
    def eof(self) -> bool:
        return bool(self._decoder.eof)

    def feed(self, data: bytes) -> Iterator[bytes]:
        while not self.eof:
            try:
                piece = self._decoder.decompress(data, _PIECE)
            except self._broken as error:
                raise ValueError("not zstd") from error
            yield piece
            data = b""
            if self._decoder.needs_input:
                return


async def _collect(chunks: AsyncIterator[bytes], limit_bytes: int) -> bytearray:
    body = bytearray()
    async for chunk in chunks:
        body += chunk
        if len(body) > limit_bytes:
            raise BodyTooLarge(limit_bytes)
    return body
