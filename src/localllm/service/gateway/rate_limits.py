"""Rate limits of each key, or of each address that has none: one meter per holder, its state in ``x-ratelimit-*``."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import ClassVar

from localllm.core.errors import LimitError
from localllm.core.generation import ChatPrompt, Prompt, TextPart, TextPrompt
from localllm.service.gateway.limits import DAY_SECONDS, Limits, Meter
from localllm.service.gateway.policy import Admission, Exchange
from localllm.service.gateway.rules import Rules
from localllm.service.pipeline import Call, EmbedCall

MAX_METERS = 10_000
_CHARS_PER_TOKEN = 4
_ANSWER_TOKENS = 256  # guessed for an answer without a limit; corrected by what it really took


class RateLimits(Admission):
    name: ClassVar[str] = "limits"

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, wall: Callable[[], float] = time.time
    ) -> None:
        self._monotonic = monotonic
        self._wall = wall
        self._meters: OrderedDict[str, Meter] = OrderedDict()
        self._refused = 0

    def wants(self, rules: Rules) -> bool:
        return rules.limits != Limits()

    def figures(self) -> dict[str, int]:
        return {"refused": self._refused, "holders": len(self._meters)}

    @asynccontextmanager
    async def admit(self, exchange: Exchange) -> AsyncIterator[None]:
        """Raises RateLimited or QuotaExceeded."""
        meter = self._meter(exchange.holder, exchange.rules.limits)
        estimate = estimated_tokens(exchange.call)
        try:
            meter.begin(estimate, now=self._monotonic(), day=self._day())
        except LimitError:
            self._refused += 1
            raise
        finally:
            exchange.headers.update(headers_of(meter, self._monotonic()))
        try:
            yield
        finally:
            used = exchange.prompt_tokens + exchange.completion_tokens
            meter.end(estimate, used, now=self._monotonic(), day=self._day())

    def _day(self) -> int:
        return int(self._wall() // DAY_SECONDS)

    def _meter(self, holder: str, limits: Limits) -> Meter:
        """The holder's meter; begun anew when its limits changed. Those unused for longest go when there are too many."""
        meter = self._meters.get(holder)
        if meter is None or meter.limits != limits:
            meter = self._meters[holder] = Meter(limits, self._monotonic())
        self._meters.move_to_end(holder)
        while len(self._meters) > MAX_METERS:
            self._meters.popitem(last=False)
        return meter


def headers_of(meter: Meter, now: float) -> dict[str, str]:
    """``x-ratelimit-limit-…``, ``-remaining-…`` and ``-reset-…`` for what is limited; resets as ``12.3s``."""
    left = meter.remaining(now)
    headers: dict[str, str] = {}
    for what, limit, remaining, reset_s in (
        ("requests", left.requests_limit, left.requests_left, left.requests_reset_s),
        ("tokens", left.tokens_limit, left.tokens_left, left.tokens_reset_s),
    ):
        if limit is not None and reset_s is not None:
            headers[f"x-ratelimit-limit-{what}"] = str(limit)
            headers[f"x-ratelimit-remaining-{what}"] = str(remaining)
            headers[f"x-ratelimit-reset-{what}"] = f"{reset_s:.1f}s"
    return headers


def estimated_tokens(call: Call | EmbedCall) -> int:
    """A guess before anything is counted: a quarter of the prompt's characters, and the answer's limit."""
    if isinstance(call, EmbedCall):
        return sum(_size(each) for each in call.inputs)
    request = call.request
    return _prompt_size(request.prompt) + request.n * min(request.max_tokens or _ANSWER_TOKENS, 4096)


def _size(value: str | object) -> int:
    if isinstance(value, str):
        return 1 + len(value) // _CHARS_PER_TOKEN
    return len(value) if isinstance(value, list | tuple) else 0


def _prompt_size(prompt: Prompt) -> int:
    if isinstance(prompt, TextPrompt):
        return _size(prompt.text)
    if not isinstance(prompt, ChatPrompt):
        return len(prompt.tokens)
    texts = [
        message.content
        if isinstance(message.content, str)
        else "".join(part.text for part in message.content if isinstance(part, TextPart))
        for message in prompt.messages
    ]
    return sum(_size(text) for text in texts)
