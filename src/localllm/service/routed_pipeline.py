"""The pipeline with aliases in front: a request for one goes where its rules and shares say, and on to the next model
when that one cannot answer. Never once a client has begun to read: the start of a prompt is held back until then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from localllm.core.aliases import Route, question_of
from localllm.core.errors import (
    ContextLengthExceeded,
    DoesNotFit,
    EngineCrashed,
    EngineStalled,
    EngineUnavailable,
    GenerationFailed,
    LoadFailed,
    LocalLLMError,
    ModelChanged,
    ModelNotFound,
    QueueFull,
    RateLimited,
)
from localllm.core.generation import Event, Progress, Started
from localllm.service.activity import Activity
from localllm.service.aliases import Aliases
from localllm.service.lease import Leasing
from localllm.service.pipeline import Call, Observer, Pipeline

log = logging.getLogger(__name__)

ANOTHER_MAY_ANSWER = (
    ContextLengthExceeded,
    DoesNotFit,
    EngineCrashed,
    EngineStalled,
    EngineUnavailable,
    GenerationFailed,
    LoadFailed,
    ModelChanged,
    ModelNotFound,
    QueueFull,
    RateLimited,
)
"""The errors that are about this model and not about the request."""


class RoutedPipeline(Pipeline):
    """``call.on_served`` hears which model answers, where an alias was asked for."""

    def __init__(
        self,
        models: Leasing,
        activity: Activity,
        observers: Sequence[Observer] = (),
        *,
        aliases: Aliases,
        status_of: Callable[[LocalLLMError], int] = lambda error: 500,
        max_output_tokens: int | None = None,
    ) -> None:
        super().__init__(
            models, activity, observers, status_of=status_of, max_output_tokens=max_output_tokens
        )
        self._aliases = aliases

    async def generate(self, call: Call) -> AsyncGenerator[Event, None]:
        route = self._aliases.route(call.model, question_of(call.request))
        if route is None:
            async with aclosing(super().generate(call)) as events:
                async for event in events:
                    yield event
            return
        async with aclosing(self._along(call, route)) as events:
            async for event in events:
                yield event

    async def _along(self, call: Call, route: Route) -> AsyncGenerator[Event, None]:
        last = len(route.models) - 1
        for number, model in enumerate(route.models):
            async with aclosing(super().generate(replace(call, model=model))) as events:
                begun: list[Event] = []
                if number < last:
                    try:
                        async with asyncio.timeout(route.slow_after_seconds):
                            begun = await _beginning(events)
                    except (*ANOTHER_MAY_ANSWER, TimeoutError) as error:
                        _log_fallback(call, model, route.models[number + 1], error)
                        continue
                if call.on_served is not None:
                    call.on_served(model)
                for event in begun:
                    yield event
                async for event in events:
                    yield event
                return


async def _beginning(events: AsyncIterator[Event]) -> list[Event]:
    """Everything up to the first event that a client gets to see."""
    begun: list[Event] = []
    async for event in events:
        begun.append(event)
        if not isinstance(event, Started | Progress):
            break
    return begun


def _log_fallback(call: Call, model: str, following: str, error: Exception) -> None:
    log.warning(
        "falling back",
        extra={
            "alias": call.model,
            "from_model": model,
            "to_model": following,
            "code": error.code if isinstance(error, LocalLLMError) else "too_slow",
        },
    )
