"""Loads that want the same memory at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from localllm.core.control import LoadRequest
from localllm.core.errors import DoesNotFit
from localllm.core.machine import Device
from tests.unit.service.conftest import Parts


async def test_of_two_loads_at_once_the_second_waits_and_takes_what_the_first_gives_back(
    parts: Parts,
) -> None:
    parts.planning.total_bytes, parts.planning.sizes = 100, {"a": 60, "b": 60}
    parts.engine.load_gate = asyncio.Event()
    promised: list[int] = []

    async def load(name: str) -> None:
        await parts.manager.load(LoadRequest(model=name))

    async with asyncio.TaskGroup() as group:
        group.create_task(load("a"))
        group.create_task(load("b"))
        for _ in range(50):
            await asyncio.sleep(0)
            claims = parts.manager.ledger.claims.values()
            promised.append(sum(sum(claim.planned.values()) for claim in claims))
        assert len(parts.engine.loads) == 1
        parts.engine.load_gate.set()
    assert max(promised) == 60
    assert len(parts.engine.loads) == 2 and len(parts.manager.loaded()) == 1


async def test_beside_a_pinned_model_nothing_is_evicted_in_vain(parts: Parts) -> None:
    parts.planning.total_bytes, parts.planning.sizes = 100, {"a": 60, "b": 60}
    await parts.manager.load(LoadRequest(model="a", pin=True))
    with pytest.raises(DoesNotFit):
        await parts.manager.load(LoadRequest(model="b"))
    assert parts.manager.loaded() == {"a"}


async def test_what_strangers_hold_is_asked_before_each_load(parts: Parts) -> None:
    parts.planning.total_bytes, parts.planning.sizes = 100, {"a": 60}
    held = {"cpu": 50}

    async def strangers(devices: Sequence[Device]) -> Mapping[str, int]:
        return dict(held)

    parts.manager.room.strangers = strangers
    with pytest.raises(DoesNotFit):
        await parts.manager.load(LoadRequest(model="a"))
    held.clear()
    await parts.manager.load(LoadRequest(model="a"))
