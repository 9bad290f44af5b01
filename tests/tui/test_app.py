"""The frame that all screens share: tabs, keys, palette, the line to the service and what happens when it breaks."""

from __future__ import annotations

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Static

from localllm.core.control import Live, Notice, ShutdownRequest
from localllm.tui.actions import ACTIONS, Scope
from localllm.tui.app import LocalLLMApp
from localllm.tui.screens.chat import ChatScreen
from localllm.tui.screens.dialogs import Confirm
from localllm.tui.screens.frame import FrameScreen
from localllm.tui.screens.help import Help
from localllm.tui.state import Link
from localllm.tui.widgets.banner import Banner
from localllm.tui.widgets.conversation import Conversation
from localllm.tui.widgets.key_bar import KeyBar
from localllm.tui.widgets.status_strip import StatusStrip
from localllm.tui.widgets.top_bar import TopBar
from tests.support import sample_state as sample
from tests.support.fake_backend import FakeBackend
from tests.support.pilots import press, settle
from tests.tui.conftest import Shown

MODES = ("chat", "models", "monitor", "server", "settings")


def app_of(pilot: Pilot[None]) -> LocalLLMApp:
    assert isinstance(pilot.app, LocalLLMApp)
    return pilot.app


def banner(pilot: Pilot[None]) -> str:
    found = pilot.app.screen.query_one(Banner)
    return str(found.visual) if found.display else ""


async def until(pilot: Pilot[None], link: Link) -> None:
    for _ in range(200):
        if app_of(pilot).state.link is link:
            await settle(pilot)
            return
        await pilot.pause(0.02)
    raise AssertionError(f"the link never was {link}")


async def test_numbers_change_the_screen(shown: Shown) -> None:
    async with shown() as pilot:
        await press(pilot, "escape")
        for number, mode in enumerate(MODES, start=1):
            await press(pilot, str(number))
            assert pilot.app.current_mode == mode
        # and function keys do while text is typed
        await press(pilot, "1", "i", "f3")
        assert pilot.app.current_mode == "monitor"


async def test_tabs_and_keys_can_be_clicked(shown: Shown) -> None:
    async with shown() as pilot:
        await pilot.click(TopBar, offset=(32, 0))
        await settle(pilot)
        assert pilot.app.current_mode == "monitor"
        line = str(pilot.app.screen.query_one(KeyBar).visual)
        await pilot.click(KeyBar, offset=(line.index("help") + 1, 0))
        await settle(pilot)
        assert isinstance(pilot.app.screen, Help)


async def test_what_was_typed_survives_another_screen(shown: Shown) -> None:
    async with shown() as pilot:
        await press(pilot, *"half a thou", "f2", "1")
        await press(pilot, *"ght")
        screen = pilot.app.screen
        assert isinstance(screen, ChatScreen)
        assert screen.query_one("Composer").text == "half a thought"  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", MODES)
async def test_help_lists_every_key(shown: Shown, mode: str) -> None:
    async with shown(mode) as pilot:
        await press(pilot, "f10")
        page = "\n".join(str(s.visual) for s in pilot.app.screen.query(Static))
        assert all(action.help in page for action in ACTIONS)
        assert page.index(f"{mode.title()}\n") < page.index("Everywhere")
        await press(pilot, "escape")
        assert isinstance(pilot.app.screen, FrameScreen)


@pytest.mark.parametrize("mode", MODES)
async def test_the_palette_has_the_actions_of_this_screen(shown: Shown, mode: str) -> None:
    async with shown(mode) as pilot:
        commands = list(app_of(pilot).get_system_commands(pilot.app.screen))
        helps = {command.help for command in commands}
        wanted = {a.help for a in ACTIONS if a.palette and a.scope in (Scope(mode), Scope.EVERYWHERE)}
        assert wanted <= helps
        assert any(command.title == "Theme localllm-light" for command in commands)


async def test_a_palette_command_runs(shown: Shown) -> None:
    async with shown() as pilot:
        await press(pilot, "ctrl+p", *"monitor")
        await pilot.pause(0.3)
        await press(pilot, "enter")
        assert pilot.app.current_mode == "monitor"


async def test_detaching_leaves_the_service_alone(shown: Shown, backend: FakeBackend) -> None:
    async with shown("monitor") as pilot:
        await pilot.press("q")
        await pilot.pause()
        assert not pilot.app.is_running or pilot.app._exit
    assert backend.asked("shutdown") == []
    assert backend.closed


async def test_stopping_the_service_asks_first(shown: Shown, backend: FakeBackend) -> None:
    async with shown("monitor") as pilot:
        await press(pilot, "Q")
        assert isinstance(pilot.app.screen, Confirm)
        assert "2 requests are running" in "\n".join(str(s.visual) for s in pilot.app.screen.query(Static))
        await press(pilot, "escape")
        assert backend.asked("shutdown") == []
        await pilot.press("Q", "y")
        await pilot.pause()
    assert backend.asked("shutdown") == [ShutdownRequest()]


async def test_before_the_service_answers_the_frame_is_there(shown: Shown, backend: FakeBackend) -> None:
    backend.cut("connection refused")
    async with shown() as pilot:
        assert pilot.app.screen.query_one(Conversation).is_attached
        assert str(pilot.app.screen.query_one(StatusStrip).visual).startswith("waiting for the service")
        assert "connection refused" in banner(pilot)
        backend.mend()
        await until(pilot, Link.UP)
        assert banner(pilot) == ""
        assert len(pilot.app.screen.query_one(Conversation).turns) == 2


async def test_a_service_that_restarts_is_found_again(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        backend.cut("it was stopped")
        await until(pilot, Link.LOST)
        assert "it was stopped" in banner(pilot)
        # what was known is still there to read
        assert len(pilot.app.screen.query_one(Conversation).turns) == 2
        backend.state = msgspec.structs.replace(
            sample.STATE, identity=msgspec.structs.replace(sample.IDENTITY, port=11999)
        )
        backend.mend()
        await until(pilot, Link.UP)
        assert "127.0.0.1:11999" in str(pilot.app.screen.query_one(TopBar).visual)


async def test_a_stopped_service_is_started_only_when_asked(shown: Shown, backend: FakeBackend) -> None:
    backend.startable = True
    async with shown("monitor") as pilot:
        backend.cut("stopped by its owner")
        await until(pilot, Link.LOST)
        assert backend.asked("connect") == [True, *[False] * (len(backend.asked("connect")) - 1)]
        await press(pilot, "S")
        await until(pilot, Link.UP)
        assert backend.asked("connect")[-1] is True


async def test_a_reply_goes_on_after_the_line_was_lost(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, *"go", "enter")
        reply = pilot.app.screen.query_one(Conversation).turns[-1].message.id
        backend.say(reply, "one ")
        backend.cut()
        await until(pilot, Link.LOST)
        backend.say(reply, "two")
        backend.mend()
        await until(pilot, Link.UP)
        assert pilot.app.screen.query_one(Conversation).turns[-1].message.content == "one two"


async def test_notices_become_a_banner_and_informations_do_not(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        notice = Notice(code="low_disk", level="warning", text="The disk is nearly full.", since=sample.NOW)
        backend.change(notices=(msgspec.structs.replace(notice, level="info"),))
        await settle(pilot)
        assert banner(pilot) == ""
        backend.change(notices=(notice,))
        await settle(pilot)
        assert banner(pilot) == "The disk is nearly full."


async def test_state_reaches_a_screen_when_it_is_shown_again(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        await press(pilot, "f3")
        backend.change(live=Live(running=9))
        await press(pilot, "1")
        assert "9 req" in str(pilot.app.screen.query_one(StatusStrip).visual)


async def test_an_unchanged_state_draws_nothing(shown: Shown, backend: FakeBackend) -> None:
    async with shown() as pilot:
        strip = pilot.app.screen.query_one(StatusStrip)
        before = strip.visual
        backend.change(devices=sample.STATE.devices)
        await settle(pilot)
        assert strip.visual is before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(60, 20), (80, 24), (120, 40), (10, 3), (1, 1), (300, 100)])
async def test_any_size_is_survived(shown: Shown, mode: str, size: tuple[int, int]) -> None:
    async with shown(mode, size) as pilot:
        assert pilot.app.current_mode == mode


async def test_a_storm_of_resizes_is_survived(shown: Shown) -> None:
    async with shown("monitor") as pilot:
        for width in range(20, 140, 7):
            await pilot.resize_terminal(width, max(3, 150 - width))
        await settle(pilot)
        await pilot.resize_terminal(80, 24)
        await settle(pilot)
        assert "RTX 4060" in str(pilot.app.screen.query_one("#device-lines", Static).visual)


async def test_sixty_columns_show_one_pane(shown: Shown) -> None:
    async with shown(size=(60, 20)) as pilot:
        screen = pilot.app.screen
        assert not screen.query_one("#chats").display
        await press(pilot, "escape", "l")
        assert screen.query_one("#chats").display
        assert not screen.query_one("#talk").display


async def test_every_theme_can_draw_every_screen(shown: Shown) -> None:
    async with shown() as pilot:
        await press(pilot, "escape")
        for theme in pilot.app.available_themes:
            pilot.app.theme = theme
            await pilot.pause(0)
        for mode in MODES:
            await pilot.app.switch_mode(mode)
            await settle(pilot)
