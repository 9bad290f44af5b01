"""Monitor, Server and Settings by their keys."""

from __future__ import annotations

import msgspec
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, Static

from localllm.core.control import ConfigChange, InstancePhase
from localllm.core.errors import ConfigInvalid
from localllm.tui.screens.dialogs import Details, Picker, Prompt
from localllm.tui.screens.server import cached_share
from localllm.tui.screens.settings import shown_value
from localllm.tui.widgets.gauges import Lines
from localllm.tui.widgets.plot import Plot
from localllm.tui.widgets.table import Table
from tests.support import sample_state as sample
from tests.support.fake_backend import FakeBackend
from tests.support.pilots import press, settle
from tests.tui.conftest import Shown


def plain(pilot: Pilot[None], selector: str) -> str:
    return str(pilot.app.screen.query_one(selector, Static).visual)


# ---------------------------------------------------------------- monitor


async def test_devices_engines_and_requests_are_shown(shown: Shown) -> None:
    async with shown("monitor", (120, 40)) as pilot:
        devices = plain(pilot, "#device-lines")
        for words in ("RTX 4060", "5.1/8.0 GiB", "87 %", "71 °C", "112 W", "2.5 GHz"):
            assert words in devices
        engines = plain(pilot, "#engine-lines")
        for words in ("qwen3-8b", "busy", "2/4", "12.3k/64k", "42.1", "4.9 / 5.0", "37/37"):
            assert words in engines
        requests = plain(pilot, "#request-lines")
        for words in ("decode", "aider", "148", "22.4", "prefill", "412/900"):
            assert words in requests


async def test_a_crash_and_throttling_stand_out(shown: Shown, backend: FakeBackend) -> None:
    async with shown("monitor", (120, 40)) as pilot:
        crashed = msgspec.structs.replace(sample.QWEN, phase=InstancePhase.CRASHED)
        hot = msgspec.structs.replace(sample.GPU, throttled="thermal")
        backend.change(instances=(crashed,), devices=(sample.CPU, hot))
        await settle(pilot)
        assert "crashed" in plain(pilot, "#engine-lines")
        assert "thermal" in plain(pilot, "#device-lines")


async def test_plots_follow_the_window(shown: Shown, backend: FakeBackend) -> None:
    async with shown("monitor", (120, 40)) as pilot:
        assert backend.asked("history") == [300.0]
        assert "⣿" in plain(pilot, "#plot-speed")
        await press(pilot, "w")
        assert backend.asked("history")[-1] == 3600.0
        assert "1 h" in str(pilot.app.screen.query_one("#plot-speed", Plot).border_subtitle)


async def test_plots_are_ascii_on_request(shown: Shown) -> None:
    async with shown("monitor", ascii_plots=True) as pilot:
        assert plain(pilot, "#plot-speed").isascii()
        await press(pilot, "b")
        assert "⣿" in plain(pilot, "#plot-speed")


async def test_lines_that_stay_the_same_are_not_drawn_again(shown: Shown, backend: FakeBackend) -> None:
    async with shown("monitor") as pilot:
        lines = pilot.app.screen.query_one("#device-lines", Lines)
        before = lines.visual
        backend.change(devices=(sample.CPU, sample.GPU))
        await settle(pilot)
        assert lines.visual is before


# ---------------------------------------------------------------- server


async def test_the_address_and_snippets_are_ready_to_copy(shown: Shown) -> None:
    async with shown("server") as pilot:
        await press(pilot, "a")
        assert pilot.app.clipboard == "http://127.0.0.1:11500/v1"
        await press(pilot, "right_square_bracket", "c")
        assert "from openai import OpenAI" in pilot.app.clipboard


async def test_the_log_is_filtered_by_words_and_by_failure(shown: Shown) -> None:
    async with shown("server", (120, 40)) as pilot:
        table = pilot.app.screen.query_one("#records", Table)
        assert len(table.rows) == 7
        await press(pilot, "e")
        assert {str(r.cells["status"]) for r in table.rows} == {"400", "499", "404"}
        await press(pilot, "slash", *"not_found")
        assert [r.key for r in table.rows] == ["req-2"]
        await press(pilot, "escape", "e")
        assert len(table.rows) == 7


async def test_one_request_in_full(shown: Shown) -> None:
    async with shown("server") as pilot:
        await press(pilot, "enter")
        page = pilot.app.screen
        assert isinstance(page, Details)
        text = "\n".join(str(s.visual) for s in page.query(Static))
        for words in ("aider", "180 ms", "1980", "2026-09-21"):
            assert words in text


async def test_new_records_appear_when_the_service_has_them(shown: Shown, backend: FakeBackend) -> None:
    async with shown("server") as pilot:
        backend.change(records_revision=2)
        await settle(pilot)
        assert len(backend.asked("requests")) == 2


async def test_where_keys_are_needed_the_snippets_ask_for_one(shown: Shown, backend: FakeBackend) -> None:
    backend.entries = tuple(
        msgspec.structs.replace(e, value=["…abcd"]) if e.key == "server.api_keys" else e
        for e in backend.entries
    )
    async with shown("server") as pilot:
        assert "server.api_keys" in plain(pilot, "#address")
        await press(pilot, "c")
        assert "$LOCALLLM_API_KEY" in pilot.app.clipboard


def test_the_share_of_cached_tokens_is_counted_over_all_requests() -> None:
    assert cached_share(sample.RECORDS) == pytest.approx((1980 + 96) / (2210 + 1210 + 512 + 24 + 40))
    assert cached_share(()) is None


# ---------------------------------------------------------------- settings


async def test_every_setting_says_what_it_means_and_where_it_is_from(shown: Shown) -> None:
    async with shown("settings") as pilot:
        await press(pilot, "down", "down", "down")
        text = plain(pilot, "#meaning-text")
        for words in ("Requests that may wait", "default 32", "file", "config.toml:4"):
            assert words in text


async def test_a_number_is_changed_in_place(shown: Shown, backend: FakeBackend) -> None:
    async with shown("settings") as pilot:
        await press(pilot, "down", "down", "down", "enter")
        assert isinstance(pilot.app.screen, Prompt)
        pilot.app.screen.query_one(Input).value = "16"
        await press(pilot, "enter")
        assert backend.asked("set_config") == [ConfigChange(key="server.queue_limit", value="16")]
        row = next(
            r for r in pilot.app.screen.query_one("#settings", Table).rows if r.key == "server.queue_limit"
        )
        assert str(row.cells["value"]) == "16"


async def test_a_choice_is_picked(shown: Shown, backend: FakeBackend) -> None:
    async with shown("settings") as pilot:
        await press(pilot, "slash", *"kv_type", "enter")
        await press(pilot, "enter")
        assert isinstance(pilot.app.screen, Picker)
        await press(pilot, "up", "enter")
        assert backend.asked("set_config") == [ConfigChange(key="engine.kv_type", value="bf16")]


async def test_a_setting_goes_back_to_its_default(shown: Shown, backend: FakeBackend) -> None:
    async with shown("settings") as pilot:
        await press(pilot, "down", "down", "down", "backspace")
        assert backend.asked("set_config") == [ConfigChange(key="server.queue_limit", value=None)]


async def test_a_refused_value_leaves_the_old_one(shown: Shown, backend: FakeBackend) -> None:
    async with shown("settings") as pilot:
        await press(pilot, "down", "enter")
        pilot.app.screen.query_one(Input).value = "99999"
        backend.fail_with = ConfigInvalid("server.port must be a whole number from 0 to 65535.")
        await press(pilot, "enter")
        row = next(r for r in pilot.app.screen.query_one("#settings", Table).rows if r.key == "server.port")
        assert str(row.cells["value"]) == "11500"
        assert [n.title for n in pilot.app._notifications] == [
            "server.port must be a whole number from 0 to 65535."
        ]


async def test_the_doctor_puts_what_is_wrong_first(shown: Shown, backend: FakeBackend) -> None:
    async with shown("settings") as pilot:
        await press(pilot, "d")
        text = plain(pilot, "#checks")
        assert text.startswith("✗ threads")
        assert "localllm config set engine.threads 8" in text


async def test_a_theme_is_tried_by_looking_and_kept_by_enter(shown: Shown, backend: FakeBackend) -> None:
    async with shown("settings") as pilot:
        await press(pilot, "t", "down", "down")
        assert pilot.app.theme == "localllm-light"
        assert backend.asked("set_config") == []
        await press(pilot, "enter")
        assert backend.asked("set_config") == [ConfigChange(key="ui.theme", value="localllm-light")]


@pytest.mark.parametrize(
    ("value", "shown_as"),
    [
        (None, "unset"),
        (True, "true"),
        ([], "empty"),
        (("a", "b"), "a, b"),
        (1800.0, "1800.0"),
        (7, "7"),
        ("x", "x"),
    ],
)
def test_values_are_written_as_in_the_file(value: object, shown_as: str) -> None:
    assert shown_value(value) == shown_as
