from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.control import InstancePhase, Live, State
from localllm.tui.state import AppState
from localllm.tui.widgets.status_strip import fitted, level_colour, segments
from tests.support import sample_state as sample


def strip(state: State = sample.STATE, width: int = 200) -> str:
    return fitted(segments(AppState().with_snapshot(state, sample.NOW)), width).plain


def changed(**sections: object) -> State:
    return msgspec.structs.replace(sample.STATE, **sections)


def test_everything_is_said_where_there_is_room() -> None:
    assert strip() == (
        "qwen3-8b Q4_K_M  42.1 tok/s █  TTFT 180 ms  ctx 1.2k/16k ─────  VRAM 5.1/8.0  RAM 9.2/32  2 req"
    ).replace("─────", "━────")


def test_eighty_columns_say_what_matters() -> None:
    line = strip(width=78)
    for words in ("qwen3-8b", "42.1 tok/s", "TTFT 180 ms", "VRAM 5.1/8.0", "RAM 9.2/32", "2 req"):
        assert words in line


@given(st.integers(min_value=1, max_value=120))
def test_the_strip_never_overflows(width: int) -> None:
    assert len(strip(width=width)) <= width


def test_without_a_model_it_says_so() -> None:
    assert strip(sample.IDLE).startswith("no model loaded  idle")


def test_waiting_requests_are_counted_apart() -> None:
    assert "2+3 req" in strip(changed(live=Live(running=2, waiting=3)))


def test_a_load_shows_how_far_it_is() -> None:
    loading = msgspec.structs.replace(
        sample.QWEN, phase=InstancePhase.LOADING, progress=0.42, stage="weights"
    )
    assert "loading 42 % weights" in strip(changed(instances=(loading,)))


def test_a_crash_is_not_overlooked() -> None:
    crashed = msgspec.structs.replace(sample.QWEN, phase=InstancePhase.CRASHED)
    content = fitted(segments(AppState().with_snapshot(changed(instances=(crashed,)), 1.0)), 100)
    assert "crashed" in content.plain
    assert any("$error" in str(span.style) for span in content.spans)


def test_the_last_speed_stays_when_nothing_runs() -> None:
    assert "last 41.7 tok/s" in strip(changed(live=Live(last_tokens_per_second=41.7)))


def test_prefill_has_its_own_word() -> None:
    assert "prefill 812 tok/s" in strip(changed(live=Live(prefill_tokens_per_second=812.0, running=1)))


def test_two_cards_are_told_apart() -> None:
    second = msgspec.structs.replace(sample.GPU, id="cuda:1")
    line = strip(changed(devices=(sample.CPU, sample.GPU, second)))
    assert "GPU0 5.1/8.0  GPU1 5.1/8.0" in line


@pytest.mark.parametrize(
    ("share", "colour"), [(0.5, "$foreground"), (0.85, "$warning"), (0.91, "$error"), (None, "$quiet")]
)
def test_full_memory_warns(share: float | None, colour: str) -> None:
    assert level_colour(share) == colour
