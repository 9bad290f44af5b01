"""The chat screen by its keys: what is asked of the service, and what is shown of its answers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from localllm.core.control import ChatPatch, ChatSettings, LoadRequest, RegenerateRequest, SendRequest
from localllm.core.errors import QueueFull
from localllm.tui.screens.chat import ChatScreen
from localllm.tui.screens.chat_options import ChatOptions
from localllm.tui.screens.dialogs import Confirm, Picker, Prompt
from localllm.tui.widgets.composer import Composer
from localllm.tui.widgets.conversation import PAGE, Conversation, Earlier
from localllm.tui.widgets.table import Table
from localllm.tui.widgets.turn import SHOWN_CHARACTERS, Turn
from tests.support import sample_state as sample
from tests.support.fake_backend import FakeBackend
from tests.support.pilots import press, settle
from tests.tui.conftest import Shown


def turns(pilot: Pilot[None]) -> list[Turn]:
    return pilot.app.screen.query_one(Conversation).turns


def words(turn: Turn) -> str:
    """Everything a turn shows as plain text."""
    return "\n".join(str(static.visual) for static in turn.query(Static) if static.display)


def composer(pilot: Pilot[None]) -> Composer:
    return pilot.app.screen.query_one(Composer)


async def test_the_newest_chat_is_open_and_the_field_has_the_keyboard(shown: Shown) -> None:
    async with shown() as pilot:
        assert [t.message.id for t in turns(pilot)] == ["m1", "m3"]
        assert composer(pilot).has_focus


async def test_enter_sends_and_the_reply_grows(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, *"Hi", "ctrl+j", *"there", "enter")
        assert backend.asked("send") == [SendRequest(content="Hi\nthere")]
        assert composer(pilot).text == ""
        reply = turns(pilot)[-1]
        assert reply.message.state == "streaming"
        backend.say(reply.message.id, "Hello **you**")
        await _until(pilot, lambda: turns(pilot)[-1].message.content == "Hello **you**")
        backend.finish(
            reply.message.id, tokens_per_second=31.5, ttft_ms=210.0, completion_tokens=3, cached_tokens=7
        )
        await _until(pilot, lambda: turns(pilot)[-1].message.state == "complete")
        await settle(pilot)
        foot = words(turns(pilot)[-1])
        for figure in ("31.5 tok/s", "TTFT 210 ms", "3 tok", "7 cached"):
            assert figure in foot


async def test_an_empty_message_is_not_sent(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "space", "enter")
        assert backend.asked("send") == []


async def test_what_could_not_be_sent_goes_back_to_the_field(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await pilot.press(*"precious")
        backend.fail_with = QueueFull(
            "32 requests wait already.", retry_after_s=2.0, hint="Try again in 2 s."
        )
        await press(pilot, "enter")
        assert composer(pilot).text == "precious"


async def test_a_new_chat_is_made_by_its_first_message(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "ctrl+n")
        assert turns(pilot) == []
        await press(pilot, *"yo", "enter")
        assert len(backend.asked("create_chat")) == 1
        assert [t.message.content for t in turns(pilot)] == ["yo", ""]


async def test_stop_stops_the_reply_that_is_written(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, *"go", "enter")
        await press(pilot, "ctrl+s")
        assert backend.asked("stop") == ["chat-1"]
        await _until(pilot, lambda: turns(pilot)[-1].message.state == "partial")
        assert "cut short" in words(turns(pilot)[-1])


async def test_a_running_reply_is_shown_where_it_is_when_the_app_opens(
    shown: Shown, backend: FakeBackend
) -> None:
    await backend.send("chat-1", SendRequest(content="long story"))
    reply = backend.details["chat-1"].messages[-1].id
    backend.say(reply, "Once upon a time")
    async with shown() as pilot:
        await _until(pilot, lambda: turns(pilot)[-1].message.content == "Once upon a time")
        backend.say(reply, " there was")
        await _until(pilot, lambda: turns(pilot)[-1].message.content.endswith("there was"))


async def test_the_service_says_why_it_takes_a_while(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, *"go", "enter")
        backend.status(turns(pilot)[-1].message.id, "loading the model: weights 40%")
        await _until(pilot, lambda: "loading the model" in words(turns(pilot)[-1]))


async def test_thoughts_are_folded_with_their_time(shown: Shown) -> None:
    async with shown() as pilot:
        await press(pilot, "escape")
        answer = turns(pilot)[-1]
        assert "Thought for 3.2 s" in words(answer)
        assert "fourth power" not in words(answer)
        await press(pilot, "t")
        assert "fourth power" in words(answer)


async def test_regenerate_asks_for_a_sibling(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "escape", "r")
        assert backend.asked("regenerate") == [RegenerateRequest(message_id="m3")]
        assert "◂3/3▸" in words(turns(pilot)[-1])


async def test_siblings_are_walked_with_the_brackets(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "escape", "left_square_bracket")
        assert backend.asked("update_chat") == [ChatPatch(leaf_id="m2")]
        assert turns(pilot)[-1].message.id == "m2"
        assert "◂1/2▸" in words(turns(pilot)[-1])
        await press(pilot, "left_square_bracket")
        assert len(backend.asked("update_chat")) == 1


async def test_an_edited_question_makes_a_branch(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "escape", "e")
        assert composer(pilot).text == "Why is the sky blue?"
        await press(pilot, "backspace", *" at noon?", "enter")
        assert backend.asked("send") == [SendRequest(content="Why is the sky blue at noon?", parent_id="")]
        assert "◂2/2▸" in words(turns(pilot)[0])


async def test_escape_leaves_an_edit_without_a_trace(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "escape", "e", "escape")
        assert composer(pilot).text == ""
        await press(pilot, "i", *"new", "enter")
        assert backend.asked("send") == [SendRequest(content="new", parent_id=None)]


async def test_code_is_copied_without_its_fences(shown: Shown) -> None:
    async with shown() as pilot:
        await press(pilot, "escape", "c")
        assert pilot.app.clipboard.startswith("def scattered(nm: float)")
        assert "```" not in pilot.app.clipboard


async def test_a_chosen_turn_is_copied(shown: Shown) -> None:
    async with shown() as pilot:
        await press(pilot, "escape", "k", "y")
        assert pilot.app.clipboard == "Why is the sky blue?"


async def test_search_asks_the_service_and_keeps_the_chat(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "escape", "slash", *"rust")
        assert backend.asked("chats")[-1] == "rust"
        table = pilot.app.screen.query_one(Table)
        assert [r.key for r in table.rows] == ["chat-2"]
        assert [t.message.id for t in turns(pilot)] == ["m1", "m3"]
        await press(pilot, "escape")
        assert len(table.rows) == 4


async def test_the_list_opens_what_the_cursor_is_on(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        pilot.app.screen.query_one(Table).focus_list()
        await press(pilot, "down")
        assert backend.asked("chat")[-1] == "chat-2"
        assert turns(pilot) == []


async def test_the_model_is_switched_and_loaded(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "ctrl+t")
        assert isinstance(pilot.app.screen, Picker)
        await press(pilot, "down", "down", "enter")
        patch = backend.asked("update_chat")[-1]
        assert patch.settings == msgspec.structs.replace(sample.CHAT.settings, model="gemma3-270m")
        assert backend.asked("load") == [LoadRequest(model="gemma3-270m")]


async def test_options_are_checked_and_saved(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "ctrl+o")
        form = pilot.app.screen
        assert isinstance(form, ChatOptions)
        form.query_one("#top_p", Input).value = "7"
        await press(pilot, "ctrl+s")
        assert pilot.app.screen is form
        form.query_one("#top_p", Input).value = "0.9"
        form.query_one("#seed", Input).value = "42"
        await press(pilot, "ctrl+s")
        settings = backend.asked("update_chat")[-1].settings
        assert (settings.top_p, settings.seed, settings.temperature, settings.model) == (
            0.9,
            42,
            0.7,
            "qwen3-8b",
        )


async def test_a_new_chat_keeps_the_options_chosen_for_it(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "ctrl+n", "ctrl+o")
        pilot.app.screen.query_one("#temperature", Input).value = "0"
        await press(pilot, "ctrl+s")
        await press(pilot, *"yo", "enter")
        assert backend.asked("create_chat") == [
            ChatPatch(settings=ChatSettings(model="qwen3-8b", temperature=0.0))
        ]


async def test_a_chat_is_deleted_only_after_asking(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "escape", "D")
        assert isinstance(pilot.app.screen, Confirm)
        await press(pilot, "n")
        assert backend.asked("delete_chat") == []
        await press(pilot, "D", "y")
        assert backend.asked("delete_chat") == ["chat-1"]
        assert isinstance(pilot.app.screen, ChatScreen)


async def test_export_writes_a_file_and_never_over_one(
    shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with shown() as pilot:
        await press(pilot, "escape", "x")
        assert isinstance(pilot.app.screen, Prompt)
        await press(pilot, "enter")
        target = tmp_path / "why-is-the-sky-blue.md"
        assert target.read_text() == "# Why is the sky blue?\n"
        target.write_text("mine")
        await press(pilot, "x", "enter")
        assert target.read_text() == "mine"


async def test_a_long_chat_lays_out_its_end_first(shown: Shown, backend: FakeBackend) -> None:
    messages = tuple(
        msgspec.structs.replace(
            sample.CHAT.messages[0], id=f"n{i}", parent_id=f"n{i - 1}" if i else None, content=f"turn {i}"
        )
        for i in range(PAGE + 12)
    )
    backend.details["chat-1"] = msgspec.structs.replace(
        sample.CHAT, messages=messages, leaf_id=messages[-1].id
    )
    async with shown() as pilot:
        assert len(turns(pilot)) == PAGE
        assert pilot.app.screen.query_one(Earlier).is_attached
        await press(pilot, "escape", "p")
        assert len(turns(pilot)) == PAGE + 12
        assert not pilot.app.screen.query(Earlier)


async def test_a_huge_answer_is_shown_in_part_and_says_so(shown: Shown, backend: FakeBackend) -> None:
    huge = msgspec.structs.replace(sample.CHAT.messages[2], content="x" * 1_000_000)
    backend.details["chat-1"] = msgspec.structs.replace(sample.CHAT, messages=(sample.CHAT.messages[0], huge))
    async with shown(size=(120, 40)) as pilot:
        assert f"{SHOWN_CHARACTERS:,}" in words(turns(pilot)[-1])


async def _until(pilot: Pilot[None], done: object, rounds: int = 100) -> None:
    """Give the app rounds until ``done()`` holds; what streams is drawn on a timer of its own."""
    assert callable(done)
    for _ in range(rounds):
        if done():
            return
        await pilot.pause(0.02)
    raise AssertionError("it never happened")
