from __future__ import annotations

import msgspec
from textual.pilot import Pilot
from textual.widgets import Input, Static

from localllm.core.control import ImportRequest, LoadRequest, PullRequest, Task, TaskPhase, UnloadRequest
from localllm.core.errors import DoesNotFit
from localllm.tui.screens.dialogs import Details, Prompt
from localllm.tui.screens.find_model import PullChoice
from localllm.tui.screens.models import context_steps
from localllm.tui.widgets.choice import Segmented, Slider
from localllm.tui.widgets.line import Line
from localllm.tui.widgets.table import Table
from tests.support import sample_state as sample
from tests.support.fake_backend import FakeBackend
from tests.support.pilots import press, settle
from tests.tui.conftest import Shown


def fit_rows(pilot: Pilot[None]) -> dict[str, str]:
    rows = pilot.app.screen.query_one("#rows", Table).rows
    return {row.key: str(row.cells["verdict"]) for row in rows}


async def test_the_first_model_and_its_fit_are_shown(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models") as pilot:
        assert backend.asked("fit") == [("qwen3-8b", None, None)]
        assert fit_rows(pilot)["Q2_K"] == "fits"
        assert fit_rows(pilot)["Q8_0"] == "no"
        # the quant that is here is what the bar speaks of
        assert pilot.app.screen.query_one("#rows", Table).highlighted == "Q4_K_M"


async def test_moving_the_slider_asks_the_planner_anew(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models") as pilot:
        assert fit_rows(pilot)["Q4_K_M"] == "24/37 GPU"
        await press(pilot, "left_square_bracket")
        assert backend.asked("fit")[-1] == ("qwen3-8b", 8192, "f16")
        assert fit_rows(pilot)["Q4_K_M"] == "fits"
        await press(pilot, "t")
        assert backend.asked("fit")[-1] == ("qwen3-8b", 8192, "q8_0")


async def test_a_fast_slider_asks_only_for_where_it_rests(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models") as pilot:
        await press(pilot, "left_square_bracket", "left_square_bracket", "left_square_bracket")
        assert [context for _, context, _ in backend.asked("fit")] == [None, 2048]


async def test_enter_loads_what_the_sliders_say(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models") as pilot:
        await press(pilot, "left_square_bracket", "t", "enter")
        assert backend.asked("load") == [LoadRequest(model="qwen3-8b", context_length=8192, kv_type="q8_0")]


async def test_untouched_sliders_leave_the_choice_to_the_planner(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models") as pilot:
        await press(pilot, "enter")
        assert backend.asked("load") == [LoadRequest(model="qwen3-8b")]


async def test_what_does_not_fit_says_what_to_do(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models") as pilot:
        backend.fail_with = DoesNotFit("qwen3-8b needs 7.2 GiB of 6.9 GiB.", hint="Take a context of 8k.")
        await press(pilot, "enter")
        messages = [(n.title, n.message) for n in pilot.app._notifications]
        assert messages == [("qwen3-8b needs 7.2 GiB of 6.9 GiB.", "Take a context of 8k.")]


async def test_unload_delete_and_details(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models") as pilot:
        await press(pilot, "u")
        assert backend.asked("unload") == [UnloadRequest(model="qwen3-8b")]
        await press(pilot, "d")
        assert isinstance(pilot.app.screen, Details)
        await press(pilot, "escape", "down", "down", "D", "y")
        assert backend.asked("remove_model") == [("gemma3-270m", False)]
        keys = [row.key for row in pilot.app.screen.query_one("#here", Table).rows]
        assert keys == ["qwen3-8b", "nomic-embed-v1.5", "llama3.3-70b"]


async def test_a_file_is_imported_by_its_path(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models") as pilot:
        await press(pilot, "a")
        assert isinstance(pilot.app.screen, Prompt)
        pilot.app.screen.query_one(Input).value = "/models/x.gguf"
        await press(pilot, "enter")
        assert backend.asked("import_model") == [ImportRequest(path="/models/x.gguf")]


async def test_a_running_import_shows_how_far_it_is(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models", (120, 40)) as pilot:
        task = Task(
            id="t",
            kind="import",
            title="x.gguf",
            phase=TaskPhase.RUNNING,
            done=50,
            total=200,
            rate_bytes_per_second=3e8,
            eta_seconds=12.0,
        )
        backend.change(tasks=(task,))
        await settle(pilot)
        area = pilot.app.screen.query_one("#tasks", Static)
        assert area.display
        assert "25 %" in str(area.visual)
        backend.change(tasks=(msgspec.structs.replace(task, phase=TaskPhase.DONE),))
        await settle(pilot)
        assert not area.display


async def test_filtering_narrows_the_list(shown: Shown) -> None:
    async with shown("models") as pilot:
        await press(pilot, "slash", *"gem")
        table = pilot.app.screen.query_one("#here", Table)
        assert [row.key for row in table.rows] == ["gemma3-270m"]
        await press(pilot, "escape")
        assert len(table.rows) == 4


async def test_the_legend_adds_up(shown: Shown) -> None:
    async with shown("models") as pilot:
        legend = str(pilot.app.screen.query_one("#legend", Line).visual)
        assert legend == "weights 4.7  KV 2.2  buffers 0.3  = 7.2 of 7.2"


async def test_a_click_on_the_track_moves_the_knob(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models") as pilot:
        await pilot.click(Slider, offset=(10, 0))
        await settle(pilot)
        assert backend.asked("fit")[-1][1] == 2048
        await pilot.click(Segmented, offset=(18, 0))
        await settle(pilot)
        assert backend.asked("fit")[-1][2] == "q8_0"


def test_steps_hold_the_one_in_use_and_the_trained_length() -> None:
    assert context_steps(16_384, 40_960) == (2048, 4096, 8192, 16_384, 32_768, 40_960)
    assert context_steps(3000, 2048) == (2048, 3000)
    assert context_steps(512, None)[-1] == 131_072


async def test_nothing_here_says_how_to_begin(shown: Shown) -> None:
    empty = msgspec.structs.replace(sample.IDLE, models=())
    async with shown("models", service=FakeBackend(empty, chats=())) as pilot:
        note = pilot.app.screen.query_one("#here .table--empty")
        assert note.display


# ---------------------------------------------------------------- getting a model


async def test_a_model_is_searched_looked_at_and_pulled(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models", (120, 40)) as pilot:
        await press(pilot, "g")
        assert backend.asked("search") == [""]
        await press(pilot, *"qwen")
        assert backend.asked("search") == ["", "qwen"]
        assert "Fits whole in Q4_K_M" in str(pilot.app.screen.query_one("#note", Static).visual)
        await press(pilot, "enter", "enter")
        assert backend.asked("preview") == [PullRequest(reference="hf.co/Qwen/Qwen3-8B-GGUF")]
        assert isinstance(pilot.app.screen, PullChoice)
        assert backend.asked("pull") == []
        await press(pilot, "down", "enter")
        assert backend.asked("pull") == [PullRequest(reference="hf.co/Qwen/Qwen3-8B-GGUF", quant="IQ4_XS")]


async def test_a_reference_can_be_typed(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models") as pilot:
        await press(pilot, "g")
        pilot.app.screen.query_one(Input).value = "hf.co/me/mine"
        await press(pilot)
        assert "cannot be reached" in str(pilot.app.screen.query_one("#note", Static).visual)
        await press(pilot, "enter")
        assert backend.asked("preview") == [PullRequest(reference="hf.co/me/mine")]


async def test_leaving_any_step_fetches_nothing(shown: Shown, backend: FakeBackend) -> None:
    async with shown("models") as pilot:
        await press(pilot, "g", "escape")
        await press(pilot, "g")
        await press(pilot, "enter", "enter", "escape")
        assert backend.asked("pull") == []


async def test_a_download_is_paused_resumed_and_given_up(shown: Shown, backend: FakeBackend) -> None:
    task = Task(id="t7", kind="pull", title="qwen3-8b", phase=TaskPhase.RUNNING, done=1 << 30, total=4 << 30)
    async with shown("models") as pilot:
        backend.change(tasks=(task,))
        await press(pilot, "p")
        backend.change(tasks=(msgspec.structs.replace(task, phase=TaskPhase.PAUSED),))
        await settle(pilot)
        assert "paused" in str(pilot.app.screen.query_one("#tasks", Static).visual)
        await press(pilot, "p", "X", "y")
        assert backend.asked("steer_download") == [("t7", "pause"), ("t7", "resume"), ("t7", "cancel")]
