"""Several generations as one: the prompts of one completion request, answered side by side.

Choices are numbered through: prompt p's choice c becomes p * n + c. What waits to be read is bounded, so a client
that reads slowly slows its own generations and nobody else's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from localllm.core.errors import LocalLLMError
from localllm.core.generation import Event, Finished, ReasoningDelta, TextDelta, ToolCallDelta, ToolCallStart

_WAITING_EVENTS = 64
_AT_ONCE = 8  # the rest waits here and not in the model's queue, where it would take the places of others
_Item = Event | LocalLLMError | None


async def fan_in(
    sources: Sequence[AsyncGenerator[Event, None]], choices_each: int
) -> AsyncGenerator[Event, None]:
    """The events of all ``sources`` as they come.

    Raises:
        LocalLLMError: the first error of any source; the others are closed.
    """
    waiting: asyncio.Queue[_Item] = asyncio.Queue(_WAITING_EVENTS)
    turns = asyncio.Semaphore(_AT_ONCE)
    failure: LocalLLMError | None = None
    async with asyncio.TaskGroup() as group:
        pumps = [
            group.create_task(_pump(source, index * choices_each, waiting, turns))
            for index, source in enumerate(sources)
        ]
        running = len(pumps)
        try:
            while running and failure is None:
                item = await waiting.get()
                if item is None:
                    running -= 1
                elif isinstance(item, LocalLLMError):
                    failure = item
                else:
                    yield item
        except GeneratorExit:
            pass  # a TaskGroup would wrap it; a generator that is closed may as well end by itself
        finally:
            for pump in pumps:
                pump.cancel()
    if failure is not None:
        raise failure


async def _pump(
    source: AsyncGenerator[Event, None],
    offset: int,
    waiting: asyncio.Queue[_Item],
    turns: asyncio.Semaphore,
) -> None:
    try:
        async with turns, aclosing(source) as events:
            async for event in events:
                await waiting.put(_renumbered(event, offset))
    except LocalLLMError as error:
        await waiting.put(error)
    else:
        await waiting.put(None)


def _renumbered(event: Event, offset: int) -> Event:
    if offset and isinstance(event, TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta | Finished):
        return replace(event, choice=event.choice + offset)
    return event
