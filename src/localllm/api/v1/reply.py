"""What every reply of the generating endpoints has in common, and the two parts that make one from events."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from localllm.core.generation import Event, Tier


class ReplyHead(Struct, frozen=True, kw_only=True):
    """What every chunk of one reply repeats. ``created`` in Unix seconds; ``model`` as the client spelled it."""

    id: str
    created: int
    model: str
    choices: int = 1
    tier: Tier = Tier.DEFAULT
    include_usage: bool = False
    logprobs: bool = False
    reasoning_field: str = "reasoning_content"


class Chunks(Protocol):
    """Events → frames of a stream; b"" for an event that has none. ``ending`` is what comes before [DONE]."""

    def __call__(self, event: Event) -> bytes: ...

    def ending(self) -> bytes: ...


class Collector(Protocol):
    """Takes every event and then makes the whole reply, which msgspec can encode."""

    def __call__(self, event: Event) -> None: ...

    def reply(self) -> Struct: ...
