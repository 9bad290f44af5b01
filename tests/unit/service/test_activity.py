from __future__ import annotations

import pytest

from localllm.core.control import RequestPhase
from localllm.service.activity import Activity, Running


def decoding(activity: Activity, name: str, *, tokens: int, first: float, last: float) -> Running:
    running = activity.begin(name, endpoint="chat", model="m", client=None, received=0.0)
    running.phase = RequestPhase.DECODE
    running.completion_tokens, running.first_token, running.last_token = tokens, first, last
    return running


def test_the_rate_counts_gaps_not_tokens() -> None:
    running = decoding(Activity(), "r", tokens=11, first=10.0, last=11.0)
    assert running.decode_rate() == pytest.approx(10.0)
    assert Running("x", "e", "m", None, 0.0, 0.0).decode_rate() is None


def test_live_sums_what_decodes_over_the_last_second() -> None:
    activity = Activity()
    one = decoding(activity, "one", tokens=0, first=0.0, last=0.0)
    two = decoding(activity, "two", tokens=0, first=0.0, last=0.0)
    for tick in range(9):
        now = 100.0 + tick * 0.25
        one.completion_tokens, two.completion_tokens = tick * 5, tick * 10
        live = activity.live(now)
    assert live.running == 2
    assert live.tokens_per_second == pytest.approx(60.0, rel=0.01)


def test_the_last_request_stays_on_show() -> None:
    activity = Activity()
    running = decoding(activity, "one", tokens=21, first=2.0, last=3.0)
    running.prompt_tokens, running.context_length = 100, 4096
    activity.end(running)
    activity.end(running)
    live = activity.live(5.0)
    assert live.last_ttft_ms == pytest.approx(2000.0)
    assert live.last_tokens_per_second == pytest.approx(20.0)
    assert (live.context_used, live.context_length) == (121, 4096)
    assert live.tokens_per_second is None and live.running == 0


def test_prefill_rate_leaves_out_what_was_cached() -> None:
    activity = Activity()
    running = activity.begin("r", endpoint="chat", model="m", client=None, received=0.0)
    running.phase, running.prefill_began = RequestPhase.PREFILL, 10.0
    running.prefilled_tokens, running.cached_tokens = 300, 100
    assert activity.live(12.0).prefill_tokens_per_second == pytest.approx(100.0)


def test_quiet_while_nothing_is_open() -> None:
    activity = Activity()
    assert activity.quiet.is_set()
    running = activity.begin("r", endpoint="chat", model="m", client=None, received=0.0)
    assert not activity.quiet.is_set()
    activity.end(running)
    assert activity.quiet.is_set()
