"""What every reply of the generating endpoints has in common, and the two parts that make one from events."""

from __future__ import annotations

from typing import Protocol

import msgspec
from msgspec import Struct

from localllm.api.errors import error_object
from localllm.core.errors import LocalLLMError
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
    """Events → frames of a stream; b"" for an event that has none.

    ``ending`` are the last frames of a stream that went well, ``failing`` those of one that broke off.
    """

    def __call__(self, event: Event) -> bytes: ...

    def ending(self) -> bytes: ...

    def failing(self, error: LocalLLMError) -> bytes: ...


class Collector(Protocol):
    """Takes every event and then makes the whole reply, which msgspec can encode."""

    def __call__(self, event: Event) -> None: ...

    def reply(self) -> Struct: ...


def openai_failure(error: LocalLLMError) -> bytes:
    """The last event of an OpenAI stream that broke off; no [DONE] follows it."""
    body = {"error": error_object(error, hint_in_message=True)}
    return b"data: " + msgspec.json.encode(body, enc_hook=str) + b"\n\n"
