"""One reply on its own: saved while it grows, and whole for whoever watches, whenever they come."""

from __future__ import annotations

import asyncio

import pytest

from localllm.core.control import ChatMessage, RequestPhase
from localllm.core.errors import EngineCrashed
from localllm.core.generation import Finished, FinishReason, ReasoningDelta, Started, TextDelta
from localllm.service import replies as replies_module
from localllm.service.lease import Waiting
from localllm.service.replies import Reply
from tests.support.until import until

EMPTY = ChatMessage(id="m", parent_id="u", role="assistant", content="", state="streaming", created_at=0.0)


def reply(saved: list[ChatMessage] | None = None) -> Reply:
    return Reply("chat", EMPTY, (saved if saved is not None else []).append)


async def test_what_came_just_before_a_silence_is_saved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replies_module, "SAVE_EVERY_S", 0.01)
    saved: list[ChatMessage] = []
    writing = reply(saved)
    writing.event(TextDelta("one"))
    writing.event(TextDelta(" two"))
    await until(lambda: bool(saved))
    assert [m.content for m in saved] == ["one two"]


async def test_a_slow_watcher_catches_up_in_one_step() -> None:
    writing = reply()
    watch = writing.watch()
    first = await anext(watch)
    for number in range(100):
        writing.event(TextDelta(f"{number} "))
    event = await anext(watch)
    assert first is not None and event is not None
    assert event.text == "".join(f"{n} " for n in range(100))
    await watch.aclose()


async def test_waiting_thinking_and_answering_are_told_apart() -> None:
    writing = reply()
    watch = writing.watch()
    await anext(watch)
    writing.waiting(Waiting(phase=RequestPhase.LOADING, stage="weights", fraction=0.5))
    event = await anext(watch)
    assert event is not None and event.status == "loading the model: weights 50%"
    writing.waiting(Waiting(phase=RequestPhase.QUEUED, position=3))
    event = await anext(watch)
    assert event is not None and event.status == "waiting, place 3"

    writing.event(Started(10, 4, 4096))
    writing.event(ReasoningDelta("hm"))
    writing.event(TextDelta("yes"))
    writing.event(Finished(FinishReason.STOP))
    message = writing.end(None)
    assert (message.reasoning, message.content, message.state) == ("hm", "yes", "complete")
    assert (message.prompt_tokens, message.cached_tokens, message.finish_reason) == (10, 4, "stop")
    rest = [event async for event in watch if event is not None]
    assert rest[-1].kind == "done" and rest[0].reasoning == "hm"


async def test_an_error_keeps_what_was_said_and_nothing_said_is_failed() -> None:
    writing = reply()
    writing.event(TextDelta("half"))
    assert writing.end(EngineCrashed("It died.", hint="Again.")).state == "partial"
    last = [event async for event in writing.watch() if event is not None][-1]
    assert (last.kind, last.code, last.hint) == ("error", "engine_crashed", "Again.")

    silent = reply()
    message = silent.end(EngineCrashed("It died.", hint="Again."))
    assert (message.state, message.error) == ("failed", "It died. Again.")


async def test_silence_gives_a_sign_of_life() -> None:
    watch = reply().watch(quiet_s=0.01)
    await anext(watch)
    assert await asyncio.wait_for(anext(watch), 5) is None
    await watch.aclose()
