"""The header of a GGUF file that is still far away, read by ranges: the verdict comes before any weight is fetched.

A header lies at the beginning and is 1 to 16 MB long, nearly all of it the tokenizer. It is fetched in growing steps and
parsed anew until it is whole, which is simpler than a parser that waits for the network, and costs a few milliseconds.
"""

from __future__ import annotations

import asyncio

import httpx

from localllm.core.errors import DownloadFailed, GGUFError
from localllm.core.gguf import GGUFHeader, parse_header
from localllm.hub.download.transfer import Located
from localllm.hub.download.wire import check_status, content_range, follow, network_errors

FIRST_BYTES = 2 << 20
MAX_HEADER_BYTES = 64 << 20
ATTEMPTS = 3


class _BeyondPrefix(Exception):
    """The parser wants bytes that are not here yet."""


class _Prefix:
    """A ``ByteSource`` over the beginning of a file; asks for more by raising."""

    def __init__(self, data: bytes | bytearray, size: int) -> None:
        self._data = data
        self._size = size

    @property
    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, length: int) -> bytes:
        end = min(offset + length, self._size)
        if end > len(self._data):
            raise _BeyondPrefix  # the parser reads ahead in windows of 1 MiB, so this may come a little early
        return bytes(self._data[offset:end])


async def read_remote_header(client: httpx.AsyncClient, located: Located, name: str) -> GGUFHeader:
    """Fetch and parse the header of one file.

    Raises:
        GGUFError: it is not a GGUF model, with what it is instead.
        Gated, NotFound, Offline, RateLimited, DownloadFailed: it could not be fetched.
    """
    data = bytearray()
    wanted = FIRST_BYTES
    while True:
        await _extend(client, located, name, data, min(wanted, located.size))
        whole = len(data) >= located.size
        try:
            return await asyncio.to_thread(parse_header, _Prefix(data, located.size))
        except _BeyondPrefix:
            pass
        if whole or wanted >= MAX_HEADER_BYTES:
            raise GGUFError(f"The header of {name} does not end within {len(data) >> 20} MiB.")
        wanted *= 4


async def _extend(
    client: httpx.AsyncClient, located: Located, name: str, data: bytearray, until: int
) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await _fetch(client, located, name, data, until)
        except DownloadFailed:
            if attempt == ATTEMPTS:
                raise
            await asyncio.sleep(0.3 * attempt)


async def _fetch(client: httpx.AsyncClient, located: Located, name: str, data: bytearray, until: int) -> None:
    """Append bytes up to ``until``; a host that ignores ranges is left after the bytes that are wanted."""
    headers = {"Range": f"bytes={len(data)}-{until - 1}"}
    async with follow(
        client, located.url, headers=headers, token=located.token, trusted=located.trusted
    ) as response:
        check_status(response, name)
        if response.status_code == 200:
            data.clear()
        elif content_range(response.headers)[0] != len(data):
            raise DownloadFailed(f"The source sent other bytes of {name} than were asked for.")
        with network_errors(located.url):
            async for piece in response.aiter_raw(1 << 16):
                data += piece
                if len(data) >= until:
                    return
    if len(data) < until:
        raise DownloadFailed(f"The source sent less of {name} than it has.")
