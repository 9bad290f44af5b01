from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.control import ReplyEvent
from localllm.core.errors import NotRunning
from localllm.tui.pace import merged, pump


def delta(text: str) -> ReplyEvent:
    return ReplyEvent(kind="delta", text=text)


@given(st.lists(st.text(max_size=4), max_size=20))
def test_merging_loses_nothing(texts: list[str]) -> None:
    out = merged([delta(t) for t in texts])
    assert len(out) == (1 if texts else 0)
    assert "".join(e.text or "" for e in out) == "".join(texts)


def test_other_events_keep_their_place() -> None:
    status = ReplyEvent(kind="status", status="loading")
    out = merged([delta("a"), status, delta("b"), ReplyEvent(kind="delta", reasoning="r"), delta("c")])
    assert [e.kind for e in out] == ["delta", "status", "delta"]
    assert (out[2].text, out[2].reasoning) == ("bc", "r")


async def test_what_arrives_together_is_drawn_once() -> None:
    async def burst() -> AsyncIterator[ReplyEvent]:
        for letter in "abc":
            yield delta(letter)
        yield ReplyEvent(kind="done")

    shown: list[ReplyEvent] = []

    async def show(event: ReplyEvent) -> None:
        shown.append(event)

    await pump(burst(), show, 0.0)
    assert [(e.kind, e.text) for e in shown] == [("delta", "abc"), ("done", None)]


async def test_a_delta_before_a_pause_does_not_wait_for_the_next() -> None:
    release = asyncio.Event()
    seen = asyncio.Event()

    async def halting() -> AsyncIterator[ReplyEvent]:
        yield delta("first")
        await release.wait()
        yield delta("second")

    async def show(event: ReplyEvent) -> None:
        if event.text == "first":
            seen.set()

    async with asyncio.TaskGroup() as group:
        group.create_task(pump(halting(), show, 0.01))
        async with asyncio.timeout(2):
            await seen.wait()
        release.set()


async def test_a_lost_line_raises_after_what_came_before() -> None:
    async def cut() -> AsyncIterator[ReplyEvent]:
        yield delta("half")
        raise NotRunning("gone")

    shown: list[str | None] = []

    async def show(event: ReplyEvent) -> None:
        shown.append(event.text)

    with pytest.raises(NotRunning):
        await pump(cut(), show, 0.0)
    assert shown == ["half"]
