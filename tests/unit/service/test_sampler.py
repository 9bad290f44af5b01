from __future__ import annotations

import asyncio
import time

from localllm.core.control import LoadRequest
from localllm.core.machine import DeviceKind, DeviceSample
from localllm.service.history import HistoryRing
from localllm.service.sampler import ServiceSampler
from tests.support.until import until
from tests.unit.service.conftest import Parts


class Reader:
    def __init__(self) -> None:
        self.reads = 0

    def sample(self) -> tuple[DeviceSample, ...]:
        self.reads += 1
        return (
            DeviceSample(
                id="cpu",
                name="CPU",
                kind=DeviceKind.CPU,
                memory_used_bytes=self.reads,
                utilisation_percent=5.0,
            ),
        )


def sampler(parts: Parts, reader: Reader, watched: list[bool]) -> tuple[ServiceSampler, HistoryRing]:
    history = HistoryRing()
    made = ServiceSampler(
        parts.manager, parts.activity, history, reader=lambda: reader, watched=lambda: watched[0]
    )
    return made, history


async def test_a_reading_goes_to_the_state_and_the_history(parts: Parts) -> None:
    await parts.manager.load(LoadRequest(model="a"))
    made, history = sampler(parts, Reader(), [True])
    await made.sample()

    assert made.devices[0].memory_used_bytes == 1
    state = parts.manager.state("a")
    assert state is not None and state.kv_total_tokens == 8192
    series = {s.name: s.values for s in history.last(60, time.time()).series}
    assert series["cpu:memory_used_bytes"] == (1.0,) and series["kv_used_tokens"] == (0.0,)


async def test_engines_are_left_alone_while_nobody_watches_and_nothing_runs(parts: Parts) -> None:
    await parts.manager.load(LoadRequest(model="a"))
    made, _ = sampler(parts, Reader(), [False])
    await made.sample()
    state = parts.manager.state("a")
    assert state is not None and state.kv_total_tokens is None


async def test_it_sleeps_long_when_idle_and_wakes_for_a_watcher(parts: Parts) -> None:
    reader, watched = Reader(), [False]
    made, _ = sampler(parts, reader, watched)
    async with asyncio.TaskGroup() as group:
        task = group.create_task(made.run())
        await until(lambda: reader.reads == 1)
        await asyncio.sleep(0.05)
        assert reader.reads == 1
        watched[0] = True
        made.hurry()
        await until(lambda: reader.reads == 2)
        task.cancel()
