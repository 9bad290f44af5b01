"""The state hub: a snapshot, then only what changed, however slow the watcher."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from localllm.core.control import Identity, Live, Notice, Section, State, StateDelta
from localllm.service import events as events_module
from localllm.service.background import Background
from localllm.service.events import StateHub

IDENTITY = Identity(version="1", nonce="n", pid=1, host="h", port=1, started_at=0.0)


class World:
    def __init__(self) -> None:
        self.live = Live()
        self.notices: tuple[Notice, ...] = ()
        self.reads = 0
        self.busy = False

    def read_live(self) -> Live:
        self.reads += 1
        return self.live


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
async def hub(world: World, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[StateHub]:
    monkeypatch.setattr(events_module, "TICK_S", 0.005)
    async with Background() as background:
        readers = {
            Section.IDENTITY: lambda: IDENTITY,
            Section.LIVE: world.read_live,
            Section.NOTICES: lambda: world.notices,
            Section.REQUESTS: tuple,
            Section.INSTANCES: tuple,
        }
        yield StateHub(readers, busy=lambda: world.busy, background=background)


async def test_a_watcher_gets_a_snapshot_and_then_only_what_changed(hub: StateHub, world: World) -> None:
    watch = hub.watch()
    assert isinstance(await anext(watch), State)

    world.live = Live(running=1)
    hub.touch(Section.LIVE)
    hub.touch(Section.NOTICES)  # touched, but equal to what was sent
    assert await anext(watch) == StateDelta(live=Live(running=1))
    await watch.aclose()


async def test_changes_within_a_tick_come_as_one(hub: StateHub, world: World) -> None:
    watch = hub.watch()
    await anext(watch)
    for running in range(50):
        world.live = Live(running=running)
        hub.touch(Section.LIVE)
    delta = await anext(watch)
    assert isinstance(delta, StateDelta) and delta.live == Live(running=49)
    await watch.aclose()


async def test_nothing_is_read_while_nobody_watches(hub: StateHub, world: World) -> None:
    for _ in range(10):
        hub.touch(Section.LIVE)
        await asyncio.sleep(0.005)
    assert world.reads == 0


async def test_figures_are_read_each_tick_while_something_runs(hub: StateHub, world: World) -> None:
    watch = hub.watch()
    await anext(watch)
    world.busy, world.live = True, Live(running=1, tokens_per_second=5.0)
    hub.touch(Section.NOTICES)
    assert (await anext(watch)) == StateDelta(live=world.live)
    world.live = Live(running=1, tokens_per_second=6.0)  # nobody touches
    assert (await anext(watch)) == StateDelta(live=world.live)
    await watch.aclose()


async def test_a_watcher_that_does_not_keep_up_gets_a_snapshot_instead(hub: StateHub, world: World) -> None:
    slow, quick = hub.watch(), hub.watch()
    await anext(slow)
    await anext(quick)
    for running in range(1, 40):
        world.live = Live(running=running)
        hub.touch(Section.LIVE)
        await anext(quick)

    caught_up = await anext(slow)
    assert isinstance(caught_up, State) and caught_up.live == Live(running=39)
    await slow.aclose()
    await quick.aclose()


async def test_silence_gives_a_sign_of_life(hub: StateHub) -> None:
    watch = hub.watch(quiet_s=0.01)
    await anext(watch)
    assert await anext(watch) is None
    await watch.aclose()


async def test_watchers_are_counted_and_announced(hub: StateHub) -> None:
    counts: list[int] = []
    hub.on_watchers = lambda: counts.append(hub.watchers)
    watch = hub.watch()
    await anext(watch)
    await watch.aclose()
    assert counts == [1, 0]


async def test_closing_ends_every_watch(hub: StateHub) -> None:
    watch = hub.watch()
    await anext(watch)
    hub.close()
    assert [type(event) async for event in watch] in ([], [State])
