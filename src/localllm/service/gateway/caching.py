"""Answers from memory, said in ``x-localllm-cache: hit`` or ``miss``; what is kept and for how long is ``exact_cache``.

It stands innermost, behind the masking: what is kept holds no personal data, and a hit is restored and checked as a
fresh answer is. A hit is streamed as it was streamed the first time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import ClassVar

import msgspec

from localllm.core.generation import Event, Finished, FinishReason, Usage
from localllm.hub.store import StoredModel
from localllm.service.gateway.exact_cache import ExactCache, cache_key, is_determined
from localllm.service.gateway.policy import Events, Exchange, Proceed, Transform
from localllm.service.gateway.rules import Rules
from localllm.service.pipeline import Call

CACHE_HEADER = "x-localllm-cache"


class Caching(Transform):
    name: ClassVar[str] = "cache"

    def __init__(
        self,
        cache: ExactCache,
        resolve: Callable[[str], StoredModel],
        reach: Callable[[str], tuple[str, ...]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._cache = cache
        self._resolve = resolve
        self._reach = reach
        self._monotonic = monotonic

    def wants(self, rules: Rules) -> bool:
        return rules.cache

    def figures(self) -> dict[str, int]:
        return msgspec.structs.asdict(self._cache.stats)

    async def around(self, exchange: Exchange, proceed: Proceed) -> Events:
        call = exchange.call
        key = self._key(exchange, call) if isinstance(call, Call) else None
        if key is not None and isinstance(call, Call):
            kept = self._cache.get(key, self._monotonic())
            exchange.headers[CACHE_HEADER] = "miss" if kept is None else "hit"
            if kept is not None:
                for event in kept:
                    yield event
                return
        said: list[Event] = []
        async with aclosing(proceed()) as events:
            async for event in events:
                if key is not None:
                    said.append(event)
                yield event
        if (
            key is not None
            and isinstance(call, Call)
            and is_whole(said, limited=call.request.max_tokens is not None)
        ):
            self._cache.put(key, said, self._monotonic())

    def _key(self, exchange: Exchange, call: Call) -> bytes | None:
        """None: the answer is not determined, or one of several models may give it."""
        if not is_determined(call.request) or len(self._reach(call.model)) != 1:
            return None
        model = self._resolve(call.model)
        return cache_key(
            call.request,
            model_identity=identity_of(model),
            key_name=exchange.key.name if exchange.key else None,
        )


def identity_of(model: StoredModel) -> str:
    """Everything about a stored model that decides its answers; a file left where it is counts with its time."""
    changed = 0 if model.sha256 else model.path.stat().st_mtime_ns
    return msgspec.json.encode((model, changed), enc_hook=str).decode()


def is_whole(events: Sequence[Event], *, limited: bool) -> bool:
    """Whether the answer ended by itself. One cut by the context depends on how the model is loaded: not kept."""
    reasons = {event.reason for event in events if isinstance(event, Finished)}
    if not reasons or not any(isinstance(event, Usage) for event in events):
        return False
    return FinishReason.CONTENT_FILTER not in reasons and (limited or FinishReason.LENGTH not in reasons)
