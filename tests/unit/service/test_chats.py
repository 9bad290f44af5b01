"""Chats over a real database and the scripted engine: trees, replies that outlive their watchers, search, export."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import dataclass

import pytest

from localllm.core.control import (
    ChatMessage,
    ChatPatch,
    ChatSettings,
    RegenerateRequest,
    ReplyEvent,
    SendRequest,
)
from localllm.core.errors import BadRequest, Conflict, NotFound
from localllm.core.generation import ChatPrompt
from localllm.service.chat_store import ChatStore
from localllm.service.chats import NEW_TITLE, Chats, path_to
from localllm.service.database import Database
from localllm.service.notices import Notices
from localllm.service.schema import schema
from localllm.settings.paths import Paths
from tests.support.script import Crash, Reasoning, Text, Wait
from tests.support.until import until
from tests.unit.service.conftest import Parts


@dataclass
class ChatParts:
    parts: Parts
    database: Database
    store: ChatStore
    chats: Chats

    async def new(self, **settings: object) -> str:
        detail = await self.chats.create(ChatPatch(settings=ChatSettings(model="a", **settings)))  # type: ignore[arg-type]
        return detail.summary.id

    async def say(self, chat: str, text: str, parent_id: str | None = None) -> ChatMessage:
        """Send and wait for the reply's end."""
        sent = await self.chats.send(chat, SendRequest(content=text, parent_id=parent_id))
        return (await self.events(chat, sent.reply_id))[-1].message  # type: ignore[return-value]

    async def events(self, chat: str, reply: str) -> list[ReplyEvent]:
        return [event async for event in self.chats.watch(chat, reply) if event is not None]


@pytest.fixture
async def chat_parts(parts: Parts, paths: Paths) -> AsyncIterator[ChatParts]:
    database = Database(paths.database_file, schema(), Notices())
    await database.open(check=False)
    store = ChatStore(database)
    yield ChatParts(parts, database, store, Chats(store, parts.pipeline, parts.background))
    await database.close()


async def test_the_users_turn_is_stored_before_the_reply_begins(chat_parts: ChatParts) -> None:
    chat_parts.parts.engine.load_gate = asyncio.Event()
    chat = await chat_parts.new()
    await chat_parts.chats.send(chat, SendRequest(content="hello"))

    user, reply = await chat_parts.store.messages(chat)
    assert (user.role, user.content, user.state) == ("user", "hello", "complete")
    assert (reply.role, reply.content, reply.state) == ("assistant", "", "streaming")
    chat_parts.parts.engine.load_gate.set()
    await chat_parts.events(chat, reply.id)


async def test_a_reply_carries_its_figures_and_its_thoughts(chat_parts: ChatParts) -> None:
    chat_parts.parts.engine.enqueue(Reasoning("let me think"), Text("the answer"))
    reply = await chat_parts.say(await chat_parts.new(), "why?")

    assert (reply.content, reply.reasoning, reply.state) == ("the answer", "let me think", "complete")
    assert reply.finish_reason == "stop" and reply.model == "a"
    assert reply.reasoning_ms is not None and reply.ttft_ms is not None
    assert reply.completion_tokens == 5 and reply.prompt_tokens


async def test_who_attaches_gets_everything_so_far_and_then_the_rest(chat_parts: ChatParts) -> None:
    gate = asyncio.Event()
    chat_parts.parts.engine.enqueue(Text("one two"), Wait(gate), Text(" three"))
    chat = await chat_parts.new()
    sent = await chat_parts.chats.send(chat, SendRequest(content="count"))
    await until(lambda: any(r.completion_tokens == 2 for r in chat_parts.parts.activity.requests()))

    watch = chat_parts.chats.watch(chat, sent.reply_id)
    first = await anext(watch)
    gate.set()
    rest = [event async for event in watch if event is not None]

    assert first is not None and first.kind == "so_far"
    assert first.message is not None and first.message.content == "one two"
    assert "".join(event.text or "" for event in rest) == " three"
    assert rest[-1].kind == "done"


async def test_a_reply_goes_on_without_a_watcher(chat_parts: ChatParts) -> None:
    chat = await chat_parts.new()
    sent = await chat_parts.chats.send(chat, SendRequest(content="hello"))
    watch = chat_parts.chats.watch(chat, sent.reply_id)
    await anext(watch)
    await watch.aclose()

    await until(lambda: not chat_parts.parts.activity.open)
    assert (await chat_parts.store.messages(chat))[-1].content == "You said: hello"


async def test_the_whole_branch_is_the_prompt_and_nothing_of_another(chat_parts: ChatParts) -> None:
    chat = await chat_parts.new(system="Be brief.")
    first = await chat_parts.say(chat, "one")
    await chat_parts.say(chat, "two")
    await chat_parts.say(chat, "two again", parent_id=first.id)

    prompt = chat_parts.parts.engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    assert [(m.role, m.content) for m in prompt.messages] == [
        ("system", "Be brief."),
        ("user", "one"),
        ("assistant", "You said: one"),
        ("user", "two again"),
    ]


async def test_regenerating_grows_a_branch_and_keeps_the_old_one(chat_parts: ChatParts) -> None:
    chat = await chat_parts.new()
    first = await chat_parts.say(chat, "hello")
    sent = await chat_parts.chats.regenerate(chat, RegenerateRequest(message_id=first.id))
    await chat_parts.events(chat, sent.reply_id)

    detail = await chat_parts.chats.detail(chat)
    replies = [m for m in detail.messages if m.role == "assistant"]
    assert {m.parent_id for m in replies} == {first.parent_id} and len(replies) == 2
    assert detail.leaf_id == sent.reply_id


async def test_stopping_keeps_what_there_is(chat_parts: ChatParts) -> None:
    chat_parts.parts.engine.enqueue(Text("a beginning"), Wait(asyncio.Event()))
    chat = await chat_parts.new()
    await chat_parts.chats.send(chat, SendRequest(content="go"))
    await until(lambda: any(r.completion_tokens == 2 for r in chat_parts.parts.activity.requests()))

    reply = (await chat_parts.chats.stop(chat)).messages[-1]
    assert (reply.content, reply.state, reply.finish_reason) == ("a beginning", "partial", "stopped")
    assert reply.error is None
    assert (await chat_parts.say(chat, "and again")).state == "complete"


async def test_a_reply_that_waits_for_its_model_can_be_stopped(chat_parts: ChatParts) -> None:
    chat_parts.parts.engine.load_gate = asyncio.Event()
    chat = await chat_parts.new()
    sent = await chat_parts.chats.send(chat, SendRequest(content="go"))
    async with aclosing(chat_parts.chats.watch(chat, sent.reply_id)) as watch:
        heard = await anext(watch)
        while heard is None or not (heard.status or "").startswith("loading the model"):
            heard = await anext(watch)

    assert (await chat_parts.chats.stop(chat)).messages[-1].state == "partial"
    chat_parts.parts.engine.load_gate.set()


async def test_a_dead_engine_leaves_a_partial_reply_with_the_reason(chat_parts: ChatParts) -> None:
    chat_parts.parts.engine.enqueue(Text("half an"), Crash())
    chat = await chat_parts.new()
    sent = await chat_parts.chats.send(chat, SendRequest(content="go"))
    last = (await chat_parts.events(chat, sent.reply_id))[-1]

    assert (last.kind, last.code) == ("error", "engine_crashed")
    reply = (await chat_parts.store.messages(chat))[-1]
    assert (reply.content, reply.state) == ("half an", "partial") and reply.error


async def test_an_unknown_model_fails_the_reply_and_keeps_the_turn(chat_parts: ChatParts) -> None:
    chat = await chat_parts.new()
    await chat_parts.chats.patch(chat, ChatPatch(settings=ChatSettings(model="nope")))
    reply = await chat_parts.say(chat, "hello")

    assert reply.state == "failed" and "nope" in (reply.error or "")
    assert len((await chat_parts.chats.detail(chat)).messages) == 2


async def test_one_reply_at_a_time(chat_parts: ChatParts) -> None:
    gate = asyncio.Event()
    chat_parts.parts.engine.enqueue(Wait(gate), Text("x"))
    chat = await chat_parts.new()
    await chat_parts.chats.send(chat, SendRequest(content="go"))
    with pytest.raises(Conflict):
        await chat_parts.chats.send(chat, SendRequest(content="go on"))
    gate.set()
    await chat_parts.chats.stop(chat)


async def test_bad_input_is_named(chat_parts: ChatParts) -> None:
    chat = await chat_parts.new()
    with pytest.raises(BadRequest, match="nothing to send"):
        await chat_parts.chats.send(chat, SendRequest(content=" \n"))
    with pytest.raises(NotFound):
        await chat_parts.chats.send(chat, SendRequest(content="x", parent_id="nope"))
    with pytest.raises(NotFound):
        await chat_parts.chats.detail("nope")
    with pytest.raises(NotFound):
        await chat_parts.chats.patch(chat, ChatPatch(leaf_id="nope"))
    with pytest.raises(NotFound):
        await chat_parts.chats.check_watchable(chat, "nope")


async def test_the_title_comes_from_the_first_line_until_a_person_gives_one(chat_parts: ChatParts) -> None:
    chat = await chat_parts.new()
    assert (await chat_parts.chats.detail(chat)).summary.title == NEW_TITLE
    await chat_parts.say(chat, "\n  What is\ta monad?\nTell me.")
    assert (await chat_parts.chats.detail(chat)).summary.title == "What is a monad?"

    long = await chat_parts.new()
    await chat_parts.say(long, "word " * 40)
    title = (await chat_parts.chats.detail(long)).summary.title
    assert len(title) <= 61 and title.endswith("…")

    await chat_parts.chats.patch(chat, ChatPatch(title="Mine"))
    await chat_parts.say(chat, "more")
    assert (await chat_parts.chats.detail(chat)).summary.title == "Mine"


@pytest.mark.parametrize("full_text", [True, False])
async def test_search_finds_words_of_either_side_and_shows_the_passage(
    chat_parts: ChatParts, full_text: bool
) -> None:
    chat = await chat_parts.new()
    await chat_parts.say(chat, "Tell me of the aurora borealis")
    other = await chat_parts.new()
    await chat_parts.say(other, "Something else")
    chat_parts.store._full_text = full_text

    (found,) = await chat_parts.chats.list("auror bore")
    assert found.id == chat and "aurora" in (found.match or "")
    assert [c.id for c in await chat_parts.chats.list("ELSE")] == [other]
    assert await chat_parts.chats.list('" OR NEAR( *') == ()
    assert [c.id for c in await chat_parts.chats.list()] == [other, chat]


async def test_deleting_a_chat_ends_its_reply_and_it_stays_deleted(chat_parts: ChatParts) -> None:
    chat_parts.parts.engine.enqueue(Text("x"), Wait(asyncio.Event()))
    chat = await chat_parts.new()
    await chat_parts.chats.send(chat, SendRequest(content="unforgettable"))
    await chat_parts.chats.delete(chat)

    assert await chat_parts.chats.list() == ()
    assert await chat_parts.chats.list("unforgettable") == ()
    assert not chat_parts.parts.activity.open


async def test_export_reads_like_a_conversation(chat_parts: ChatParts) -> None:
    chat_parts.parts.engine.enqueue(Reasoning("hmm"), Text("42"))
    chat = await chat_parts.new(system="Be brief.")
    await chat_parts.say(chat, "The answer?")

    text = await chat_parts.chats.export(chat)
    assert text.startswith("# The answer?\n")
    assert "**System**\n\nBe brief." in text
    assert "## You · " in text and "## a · " in text
    assert "> hmm" in text and text.rstrip().endswith("42")


async def test_replies_that_a_crash_left_are_marked_at_the_next_start(chat_parts: ChatParts) -> None:
    chat = await chat_parts.new()
    await chat_parts.say(chat, "hello")
    await chat_parts.database.run(
        lambda c: c.execute("UPDATE messages SET state = 'streaming' WHERE role = 'assistant'")
    )
    await chat_parts.store.mark_cut_short()

    reply = (await chat_parts.store.messages(chat))[-1]
    assert reply.state == "partial" and reply.content == "You said: hello"


def test_a_tree_with_a_cycle_ends_where_it_closes() -> None:
    def message(name: str, parent: str | None) -> ChatMessage:
        return ChatMessage(id=name, parent_id=parent, role="user", content="", created_at=0.0)

    looped = [message("a", "b"), message("b", "a")]
    assert [m.id for m in path_to(looped, "a")] == ["b", "a"]
    assert path_to(looped, None) == ()
