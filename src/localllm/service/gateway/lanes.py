"""Filters over a stream's text that must see it in one piece: text, reasoning and each call's arguments are lanes.

A filter may hold characters back until it knows more. They come out before anything else of that choice does, so what
the client gets is in the order in which the model said it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

from msgspec import structs

from localllm.core.generation import (
    Event,
    Finished,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
)

Delta = TextDelta | ReasoningDelta | ToolCallDelta


class TextFilter(Protocol):
    def feed(self, text: str) -> str:
        """What may go on of all that was fed so far."""
        ...

    def finish(self) -> str:
        """What was held back, since nothing follows."""
        ...


class Lanes:
    """``new_filter`` gets the first delta of each lane and makes its filter."""

    def __init__(self, new_filter: Callable[[Delta], TextFilter]) -> None:
        self._new_filter = new_filter
        self._open: dict[int, tuple[Delta, TextFilter]] = {}

    def __call__(self, event: Event) -> Iterator[Event]:
        if isinstance(event, TextDelta | ReasoningDelta | ToolCallDelta):
            yield from self._feed(event)
            return
        if isinstance(event, ToolCallStart | Finished):
            yield from self._end(event.choice)
        yield event

    def _feed(self, event: Delta) -> Iterator[Event]:
        current = self._open.get(event.choice)
        if current is not None and _lane(current[0]) != _lane(event):
            yield from self._end(event.choice)
            current = None
        if current is None:
            current = self._open[event.choice] = (event, self._new_filter(event))
        text = current[1].feed(_text(event))
        if text or (isinstance(event, TextDelta) and event.logprobs):
            yield _with_text(event, text)

    def _end(self, choice: int) -> Iterator[Event]:
        current = self._open.pop(choice, None)
        if current is not None and (rest := current[1].finish()):
            last = current[0]
            yield _with_text(
                structs.replace(last, logprobs=()) if isinstance(last, TextDelta) else last, rest
            )


def _lane(event: Delta) -> tuple[type, int]:
    return type(event), event.index if isinstance(event, ToolCallDelta) else 0


def _text(event: Delta) -> str:
    return event.arguments if isinstance(event, ToolCallDelta) else event.text


def _with_text(event: Delta, text: str) -> Delta:
    if isinstance(event, ToolCallDelta):
        return structs.replace(event, arguments=text)
    return structs.replace(event, text=text)
