"""Clients that leave, stall or must be kept company: over real sockets, since only they can do it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from localllm.core.errors import GenerationFailed
from localllm.engines.base import Capability
from tests.support.script import Fail, Flood, Hang, Prefill, Start, Step, Text, Wait
from tests.support.scripted_engine import DEFAULT_CAPABILITIES, ScriptedEngine
from tests.unit.api.conftest import MODEL, OpenPort, PortUnderTest, listening, until

SECOND = 1.0


def request_bytes(
    *, stream: bool, content: str = "hi", path: str = "/v1/chat/completions", **fields: Any
) -> bytes:
    body = {"model": MODEL, "messages": [{"role": "user", "content": content}], "stream": stream, **fields}
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    return head.encode() + data


@asynccontextmanager
async def connected(app: Any) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    async with listening(app) as number:
        reader, writer = await asyncio.open_connection("127.0.0.1", number)
        try:
            yield reader, writer
        finally:
            writer.close()


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("phase", ["before Started", "prefill", "generating"])
async def test_leaving_frees_the_place_within_a_second(port: PortUnderTest, stream: bool, phase: str) -> None:
    phases: dict[str, list[Step]] = {
        "before Started": [Hang(), Start(), Text("never")],
        "prefill": [Prefill(1), Hang(), Start(), Text("never")],
        "generating": [Text("one two"), Hang()],
    }
    port.engine.enqueue(*phases[phase])
    async with connected(port.app) as (_, writer):
        writer.write(request_bytes(stream=stream))
        await until(lambda: port.engine.calls == 1)
        await asyncio.sleep(0.05)
        began = time.monotonic()
        writer.close()
        await until(lambda: len(port.engine.cancelled) == 1, within_s=SECOND)
        assert time.monotonic() - began < SECOND
        await until(lambda: not port.runtime.activity.open)
    assert port.records.all[-1].status == 499


@pytest.mark.parametrize("stream", [True, False])
async def test_leaving_the_queue_costs_the_engine_nothing(open_port: OpenPort, stream: bool) -> None:
    engine = ScriptedEngine(capabilities=DEFAULT_CAPABILITIES - {Capability.PRIORITY})
    port: PortUnderTest = open_port(engine=engine)
    await port.chat("load")
    gate = asyncio.Event()
    engine.when("wait", Wait(gate))
    async with asyncio.TaskGroup() as group, listening(port.app) as number:
        running = [group.create_task(port.chat("wait")) for _ in range(8)]
        await until(lambda: engine.calls == 9)
        _, writer = await asyncio.open_connection("127.0.0.1", number)
        writer.write(request_bytes(stream=stream, content="queued"))
        await until(lambda: len(port.runtime.activity.open) == 9)
        writer.close()
        await until(lambda: len(port.runtime.activity.open) == 8, within_s=SECOND)
        gate.set()
        for task in running:
            assert (await task).status_code == 200
    assert engine.calls == 9


async def test_silence_is_filled_with_comments(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(sse_ping_seconds=0.2)
    gate = asyncio.Event()
    port.engine.enqueue(Text("one"), Wait(gate), Text(" two"))
    async with connected(port.app) as (reader, writer):
        writer.write(request_bytes(stream=True))
        await reader.readuntil(b'"content":"one"')
        await reader.readuntil(b": ping\n\n")
        gate.set()
        rest = await reader.readuntil(b"[DONE]")
    assert b'" two"' in rest


async def test_a_long_wait_for_the_first_token_is_kept_alive(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(sse_ping_seconds=0.2)
    gate = asyncio.Event()
    port.engine.enqueue(Wait(gate), Fail(GenerationFailed("Too late for a status.")), Start())
    async with connected(port.app) as (reader, writer):
        writer.write(request_bytes(stream=True))
        head = await reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        await reader.readuntil(b": ping\n\n")
        gate.set()
        rest = await reader.readuntil(b"0\r\n\r\n")
    assert b'"code":"generation_failed"' in rest
    assert b"[DONE]" not in rest


async def test_a_stalled_reader_loses_its_stream_and_nobody_elses(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(slow_reader_seconds=0.4)
    port.engine.when("flood", Flood(10_000_000, " word" * 200))
    async with listening(port.app) as number:
        stalled = socket.socket()
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.sock_connect(stalled, ("127.0.0.1", number))
        await loop.sock_sendall(stalled, request_bytes(stream=True, content="flood", context_length=1 << 24))
        await until(lambda: port.engine.calls == 1)
        other = await port.chat("still here?")
        assert other.status_code == 200
        await until(lambda: len(port.engine.cancelled) == 1, within_s=5)
        stalled.close()
    assert port.records.all[-1].status == 499


async def test_a_reader_that_only_pauses_keeps_its_stream(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(slow_reader_seconds=5)
    port.engine.when("flood", Flood(400, " word" * 200))
    async with connected(port.app) as (reader, writer):
        writer.write(request_bytes(stream=True, content="flood", context_length=1 << 16))
        await reader.readuntil(b"\r\n\r\n")
        await asyncio.sleep(0.3)
        received = await reader.read(1 << 24)
        while b"[DONE]" not in received[-64:]:
            more = await reader.read(1 << 24)
            assert more, "the stream ended before [DONE]"
            received = received[-64:] + more
    assert port.engine.cancelled == []
