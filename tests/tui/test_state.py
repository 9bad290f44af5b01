from __future__ import annotations

import msgspec
import pytest

from localllm.core.control import InstancePhase, Live, StateDelta
from localllm.tui.state import PACE_BUCKETS, AppState, Link
from tests.support import sample_state as sample


def up() -> AppState:
    return AppState().with_snapshot(sample.STATE, sample.NOW)


def test_a_snapshot_brings_the_link_up() -> None:
    state = AppState().with_loss("refused").with_snapshot(sample.STATE, sample.NOW)
    assert (state.link, state.trouble, state.service) == (Link.UP, None, sample.STATE)


def test_a_delta_changes_only_what_it_carries() -> None:
    state = up().with_delta(StateDelta(live=Live(running=7)), sample.NOW + 1)
    assert state.service is not None
    assert state.service.live.running == 7
    assert state.service.models == sample.STATE.models


def test_an_empty_section_is_a_change_too() -> None:
    state = up().with_delta(StateDelta(requests=()), sample.NOW)
    assert state.service is not None
    assert state.service.requests == ()


def test_a_delta_before_the_snapshot_says_nothing() -> None:
    assert AppState().with_delta(StateDelta(chats_revision=3), 1.0) == AppState()


def test_after_a_loss_what_was_known_stays() -> None:
    state = up().with_loss("connection refused")
    assert state.link is Link.LOST
    assert state.service == sample.STATE
    assert state.address == "127.0.0.1:11500"


def test_an_ipv6_address_is_bracketed() -> None:
    identity = msgspec.structs.replace(sample.IDENTITY, host="::1")
    state = AppState().with_snapshot(msgspec.structs.replace(sample.STATE, identity=identity), 1.0)
    assert state.address == "[::1]:11500"


def test_the_strip_speaks_of_the_instance_that_works() -> None:
    crashed = msgspec.structs.replace(
        sample.QWEN, model="other", phase=InstancePhase.CRASHED, last_used_at=sample.NOW
    )
    service = msgspec.structs.replace(sample.STATE, instances=(crashed, sample.EMBEDDER, sample.QWEN))
    instance = AppState().with_snapshot(service, 1.0).instance
    assert instance is not None
    assert instance.model == "qwen3-8b"


def test_pace_keeps_a_minute_in_equal_buckets() -> None:
    state = AppState()
    for second in range(90):
        service = msgspec.structs.replace(sample.STATE, live=Live(tokens_per_second=float(second)))
        state = state.with_snapshot(service, sample.NOW + second)
    buckets = state.pace_buckets()
    assert len(buckets) == PACE_BUCKETS
    assert len(state.pace) == 60
    assert list(buckets) == sorted(buckets)
    assert buckets[-1] == pytest.approx(85.5)


def test_silence_empties_the_pace() -> None:
    state = up().with_delta(StateDelta(live=Live()), sample.NOW + 61)
    assert state.pace == ()
    assert set(state.pace_buckets()) == {0.0}
