from __future__ import annotations

import asyncio

import pytest

from localllm.core.errors import EngineCrashed
from localllm.engines.slots import Slots
from tests.support.until import until


async def test_places_are_given_in_the_order_asked_even_to_a_large_request() -> None:
    slots = Slots(2)
    order: list[str] = []
    release = asyncio.Event()

    async def hold(name: str, count: int) -> None:
        async with slots.take(count):
            order.append(name)
            await release.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(hold("first", 1))
        await until(lambda: slots.running == 1)
        group.create_task(hold("large", 2))
        await until(lambda: slots.waiting == 1)
        group.create_task(hold("small", 1))
        await until(lambda: slots.waiting == 2)
        assert order == ["first"]
        release.set()
    assert order == ["first", "large", "small"]
    assert (slots.running, slots.waiting) == (0, 0)


async def test_who_leaves_the_queue_lets_those_behind_pass() -> None:
    slots = Slots(2)
    entered = asyncio.Event()

    async def enter(count: int) -> None:
        async with slots.take(count):
            entered.set()

    async with slots.take(1), asyncio.TaskGroup() as group:
        large = group.create_task(enter(2))
        await until(lambda: slots.waiting == 1)
        group.create_task(enter(1))
        await until(lambda: slots.waiting == 2)
        large.cancel()
        await asyncio.wait_for(entered.wait(), 5)


async def test_a_place_given_to_somebody_who_is_leaving_is_not_lost() -> None:
    slots = Slots(1)

    async def enter() -> None:
        async with slots.take(1):
            raise AssertionError("it had left")

    async with asyncio.TaskGroup() as group:
        async with slots.take(1):
            waiting = group.create_task(enter())
            await until(lambda: slots.waiting == 1)
        waiting.cancel()  # the place is its own by now, but it has not run yet
    async with asyncio.timeout(1), slots.take(1):
        assert slots.running == 1


async def test_when_the_engine_dies_nobody_waits_any_longer() -> None:
    slots = Slots(1)

    async def enter() -> None:
        with pytest.raises(EngineCrashed):
            async with slots.take(1):
                pass

    async with slots.take(1), asyncio.TaskGroup() as group:
        group.create_task(enter())
        await until(lambda: slots.waiting == 1)
        slots.fail(EngineCrashed("gone"))
    assert slots.waiting == 0
