from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.errors import QueueFull
from localllm.core.generation import Tier
from localllm.service.admission import AGEING_S, AdmissionQueue


def test_first_in_first_out_inside_a_tier() -> None:
    queue = AdmissionQueue(limit=8, capacity=1)
    first, second = queue.enter(Tier.DEFAULT, 0.0), queue.enter(Tier.DEFAULT, 1.0)

    assert queue.admit(2.0) == (first,)
    assert queue.position(second, 2.0) == 1
    queue.leave(first)
    assert queue.admit(3.0) == (second,)


def test_priority_before_default_before_flex() -> None:
    queue = AdmissionQueue(limit=8)
    flex, default, priority = (queue.enter(t, 0.0) for t in (Tier.FLEX, Tier.DEFAULT, Tier.PRIORITY))
    queue.capacity = 3

    assert queue.admit(0.0) == (priority, default, flex)


def test_flex_is_late_but_never_starved() -> None:
    queue = AdmissionQueue(limit=100, capacity=1)
    flex = queue.enter(Tier.FLEX, 0.0)
    late = queue.enter(Tier.PRIORITY, 2 * AGEING_S + 1)

    assert queue.admit(2 * AGEING_S + 1) == (flex,)
    assert queue.position(late, 2 * AGEING_S + 1) == 1


def test_a_full_queue_says_when_to_come_back() -> None:
    queue = AdmissionQueue(limit=2, capacity=1)
    queue.enter(Tier.DEFAULT, 0.0)
    queue.admit(0.0)
    queue.enter(Tier.DEFAULT, 0.0)
    queue.enter(Tier.DEFAULT, 0.0)

    with pytest.raises(QueueFull) as caught:
        queue.enter(Tier.DEFAULT, 0.0)
    assert caught.value.retry_after_s is not None and caught.value.retry_after_s >= 1


def test_a_free_place_is_given_even_when_nobody_may_wait() -> None:
    queue = AdmissionQueue(limit=1, capacity=2)
    queue.enter(Tier.DEFAULT, 0.0)

    second = queue.enter(Tier.DEFAULT, 0.0)

    assert second in queue.admit(0.0)


def test_leaving_twice_is_harmless() -> None:
    queue = AdmissionQueue(limit=2, capacity=1)
    ticket = queue.enter(Tier.DEFAULT, 0.0)
    queue.leave(ticket)
    queue.leave(ticket)

    assert queue.waiting == 0 and queue.position(ticket, 0.0) is None


@given(st.lists(st.sampled_from(["enter", "admit", "leave"]), max_size=60), st.integers(0, 3))
def test_never_more_run_than_there_are_places_and_nobody_is_lost(steps: list[str], capacity: int) -> None:
    queue = AdmissionQueue(limit=5, capacity=capacity)
    inside = []
    for now, step in enumerate(steps):
        if step == "enter":
            try:
                inside.append(queue.enter(Tier.DEFAULT, float(now)))
            except QueueFull:
                assert queue.waiting >= 5
        elif step == "admit":
            queue.admit(float(now))
        elif inside:
            queue.leave(inside.pop(0))
        assert len(queue.running) <= capacity
        assert len(queue.running) + queue.waiting == len(inside)
