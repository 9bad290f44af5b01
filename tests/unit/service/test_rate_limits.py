"""Limits as many clients meet them: the rate holds over a minute, whoever asks and however often."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from localllm.core.errors import RateLimited
from localllm.core.generation import GenerationRequest, TextPrompt
from localllm.service.gateway.limits import Limits
from localllm.service.gateway.policy import Exchange
from localllm.service.gateway.rate_limits import MAX_METERS, RateLimits
from localllm.service.gateway.rules import Rules
from localllm.service.pipeline import Call


def exchange(limits: Limits, holder: str = "key app") -> Exchange:
    request = GenerationRequest(request_id="r", prompt=TextPrompt("x" * 40), max_tokens=10)
    call = Call(id="r", endpoint="test", model="m", request=request)
    return Exchange(call=call, rules=Rules(limits=limits), holder=holder, address="a")


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


async def admitted(policy: RateLimits, limits: Limits, *, used_tokens: int = 0) -> bool:
    asked = exchange(limits)
    try:
        async with policy.admit(asked):
            asked.prompt_tokens = used_tokens
    except RateLimited:
        return False
    return True


async def test_fifty_clients_get_their_common_rate_to_two_percent() -> None:
    clock = Clock()
    policy = RateLimits(clock, clock)
    limits = Limits(requests=600)
    per_minute = []
    for _ in range(3):
        count = 0
        for _ in range(600):  # a tenth of a second each: every client tries once
            clock.now += 0.1
            for _ in range(50):
                count += await admitted(policy, limits)
        per_minute.append(count)
    assert per_minute[0] <= 1200  # a minute's worth at once, and the minute's own
    assert per_minute[1:] == pytest.approx([600, 600], rel=0.02)


async def test_tokens_are_held_to_what_was_really_used() -> None:
    clock = Clock()
    policy = RateLimits(clock, clock)
    limits = Limits(tokens=6000)
    used = []
    for _ in range(3):
        spent = 0
        for _ in range(600):
            clock.now += 0.1
            for _ in range(50):
                spent += 300 * await admitted(policy, limits, used_tokens=300)
        used.append(spent)
    # every answer takes fifteen times what was guessed; the bucket goes below zero and pays it back
    assert used[1:] == pytest.approx([6000, 6000], rel=0.06)


async def test_a_refusal_takes_nothing_and_an_end_gives_the_place_back() -> None:
    clock = Clock()
    policy = RateLimits(clock, clock)
    limits = Limits(concurrent=2)
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(policy.admit(exchange(limits)))
        await stack.enter_async_context(policy.admit(exchange(limits)))
        assert not await admitted(policy, limits)
    assert await admitted(policy, limits)
    assert policy.figures() == {"refused": 1, "holders": 1}


async def test_holders_do_not_pile_up() -> None:
    policy = RateLimits()
    for number in range(MAX_METERS + 10):
        async with policy.admit(exchange(Limits(requests=1), holder=f"address {number}")):
            pass
    assert policy.figures()["holders"] == MAX_METERS
