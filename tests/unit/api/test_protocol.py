"""Below ASGI: heads that never end, and what is no HTTP at all."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.unit.api.conftest import PortUnderTest, listening

HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def answer_to(number: int, *pieces: bytes) -> bytes:
    """Everything the port says until it closes the connection, in order or by a reset."""
    reader, writer = await asyncio.open_connection("127.0.0.1", number)
    for piece in pieces:
        writer.write(piece)
        await asyncio.sleep(0.05)
    said = b""
    try:
        async with asyncio.timeout(5):
            while more := await reader.read(1 << 16):
                said += more
    except ConnectionResetError:
        pass
    finally:
        writer.close()
    return said


@pytest.mark.parametrize("pieces", [[], [b"GET /health HT"], [HEALTH, b"POST /v1/chat/completions"]])
async def test_a_head_that_never_comes_is_given_up(
    port: PortUnderTest, monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]
) -> None:
    monkeypatch.setattr("localllm.api.protocol.HEAD_S", 0.3)
    async with listening(port.app) as number:
        said = await answer_to(number, *pieces)
    assert said.count(b"200 OK") == pieces.count(HEALTH)


async def test_a_slow_but_steady_head_is_served(port: PortUnderTest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localllm.api.protocol.HEAD_S", 1.0)
    async with listening(port.app) as number:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        for piece in (HEALTH[:10], HEALTH[10:30], HEALTH[30:]):
            writer.write(piece)
            await asyncio.sleep(0.1)
        assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        await asyncio.sleep(1.1)  # an idle connection is kept: that is the keep-alive's business
        writer.write(HEALTH)
        await asyncio.sleep(0.1)
        assert b"HTTP/1.1 200" in await reader.read(1000)
        writer.close()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"HELLO\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_400_in_the_ports_form(port: PortUnderTest, garbage: bytes) -> None:
    async with listening(port.app) as number:
        head, _, body = (await answer_to(number, garbage)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400")
    assert json.loads(body)["error"]["type"] == "invalid_request_error"


async def test_endless_headers_are_cut_off(port: PortUnderTest) -> None:
    async with listening(port.app) as number:
        said = await answer_to(number, b"GET /health HTTP/1.1\r\n", b"X: y\r\n" * 40_000)
    assert said == b"" or said.startswith(b"HTTP/1.1 400")
