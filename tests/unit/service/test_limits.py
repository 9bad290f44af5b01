"""Token buckets and quotas against a clock that is set by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.errors import QuotaExceeded, RateLimited
from localllm.service.gateway.limits import Limits, Meter


def meter(**limits: int) -> Meter:
    return Meter(Limits(**limits), now=0.0)


def admitted(m: Meter, now: float, tokens: int = 0) -> bool:
    try:
        m.begin(tokens, now=now, day=0)
    except RateLimited:
        return False
    m.end(tokens, tokens, now=now, day=0)
    return True


def test_a_burst_is_served_and_then_the_rate_holds() -> None:
    m = meter(requests=60)
    assert sum(admitted(m, 0.0) for _ in range(100)) == 60
    with pytest.raises(RateLimited) as caught:
        m.begin(0, now=0.0, day=0)
    assert caught.value.retry_after_s == pytest.approx(1.0)
    assert admitted(m, 1.01)
    assert not admitted(m, 1.02)


@given(st.integers(1, 300), st.integers(1, 50))
def test_over_a_minute_no_more_than_the_rate_is_served_after_the_burst(rate: int, clients: int) -> None:
    m = meter(requests=rate)
    while admitted(m, 0.0):
        pass
    served = sum(admitted(m, step * 60.0 / 1000) for step in range(1, 1001) for _ in range(min(clients, 3)))
    assert rate - 1 <= served <= rate


def test_tokens_are_estimated_at_first_and_corrected_at_the_end() -> None:
    m = meter(tokens=1000)
    m.begin(800, now=0.0, day=0)
    with pytest.raises(RateLimited):
        m.begin(300, now=0.0, day=0)
    m.end(800, 100, now=0.0, day=0)  # it used less
    m.begin(300, now=0.0, day=0)
    m.end(300, 2000, now=0.0, day=0)  # it used more: the debt is paid by waiting
    with pytest.raises(RateLimited) as caught:
        m.begin(1, now=0.0, day=0)
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s > 60


def test_a_request_larger_than_the_bucket_is_not_locked_out_for_ever() -> None:
    m = meter(tokens=1000)
    m.begin(5000, now=0.0, day=0)
    assert m.remaining(0.0).tokens_left == 0


def test_concurrency_and_the_daily_quota() -> None:
    m = meter(concurrent=1, daily_tokens=100)
    m.begin(0, now=0.0, day=5)
    with pytest.raises(RateLimited):
        m.begin(0, now=0.0, day=5)
    m.end(0, 150, now=1.0, day=5)
    with pytest.raises(QuotaExceeded) as caught:
        m.begin(0, now=1.0, day=5)
    assert caught.value.retry_after_s is None
    m.begin(0, now=2.0, day=6)


def test_what_is_left_is_told() -> None:
    m = meter(requests=10, tokens=600)
    m.begin(60, now=0.0, day=0)
    left = m.remaining(0.0)
    assert (left.requests_left, left.tokens_left) == (9, 540)
    assert left.tokens_reset_s == pytest.approx(6.0)
    assert meter().remaining(0.0).requests_left is None
