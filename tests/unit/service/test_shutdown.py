from __future__ import annotations

import asyncio

import pytest

from localllm.core.errors import ShuttingDown
from localllm.service.shutdown import Shutdown
from tests.support.script import Text, Wait
from tests.support.until import until
from tests.unit.service.conftest import Parts


async def test_what_runs_may_end_and_nothing_new_begins(parts: Parts) -> None:
    gate = asyncio.Event()
    parts.engine.enqueue(Text("x"), Wait(gate), Text("y"))
    shutdown = Shutdown(drain_s=20)
    async with asyncio.TaskGroup() as group:
        ask = group.create_task(parts.ask("hi"))
        await until(lambda: any(r.completion_tokens for r in parts.activity.requests()))
        drain = group.create_task(shutdown.drain(parts.manager, parts.activity))
        await asyncio.sleep(0)
        with pytest.raises(ShuttingDown):
            await parts.ask("too late")
        assert not drain.done()
        gate.set()
    assert ask.result()


async def test_a_second_request_to_stop_ends_the_waiting(parts: Parts) -> None:
    parts.engine.enqueue(Text("x"), Wait(asyncio.Event()))
    shutdown = Shutdown(drain_s=600)
    async with asyncio.TaskGroup() as group:
        ask = group.create_task(parts.ask("hi"))
        await until(lambda: any(r.completion_tokens for r in parts.activity.requests()))
        shutdown.request()
        drain = group.create_task(shutdown.drain(parts.manager, parts.activity))
        await asyncio.sleep(0.01)
        shutdown.request(restart=True)
        await until(drain.done)
        ask.cancel()
    assert shutdown.restart
