from __future__ import annotations

import pytest

from localllm.service.rate import Rate


class Clock:
    now = 100.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


def fed(clock: Clock, pace: int, seconds: float, start: int = 0) -> Rate:
    rate = Rate(lambda: clock.now)
    for step in range(int(seconds * 10) + 1):
        rate.add(start + round(pace * step / 10))
        clock.now += 0.1
    return rate


def test_what_was_there_before_does_not_count_as_speed(clock: Clock) -> None:
    rate = fed(clock, 1000, 5, start=10**9)
    assert rate.per_second() == pytest.approx(1000, rel=0.1)


def test_nothing_is_said_until_a_second_was_seen(clock: Clock) -> None:
    rate = fed(clock, 1000, 0.5)
    assert rate.per_second() is None
    assert rate.eta_seconds(1000) is None


def test_a_line_that_stalls_slows_down_in_what_is_shown(clock: Clock) -> None:
    rate = fed(clock, 1000, 8)
    clock.now += 30
    assert (rate.per_second() or 0) < 300


def test_beginning_anew_forgets_the_old_pace(clock: Clock) -> None:
    rate = fed(clock, 1000, 8)
    rate.add(0)
    assert rate.per_second() is None


def test_the_end_is_told_steadily(clock: Clock) -> None:
    rate = fed(clock, 1000, 8)
    first = rate.eta_seconds(60_000)
    assert first == pytest.approx(60, rel=0.1)
    for step in range(1, 20):  # a hiccup of two seconds
        clock.now += 0.1
        rate.add(8000 + step)
    second = rate.eta_seconds(60_000)
    assert second is not None
    assert 55 < second < 75
