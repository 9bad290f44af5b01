"""What a policy is. Admissions decide whether a request may begin and hear of its end; transforms stand in its stream.

A policy never answers for another one and never lets a request past by failing: what it raises ends the request.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import ClassVar

from localllm.core.gateway import KeyInfo
from localllm.core.generation import Event, ReasoningDelta, TextDelta, ToolCallDelta, Usage
from localllm.engines.base import EmbeddingResult
from localllm.service.gateway.rules import Rules
from localllm.service.pipeline import Call, EmbedCall

Events = AsyncGenerator[Event, None]
Proceed = Callable[[], Events]
ProceedEmbed = Callable[[], Awaitable[EmbeddingResult]]


@dataclass(kw_only=True)
class Exchange:
    """One request on its way. Policies may replace ``call`` and add ``headers``, which go out with the answer.

    ``holder`` is what limits are kept for (a key, or an address); the token counts are what the engine really did.
    """

    call: Call | EmbedCall
    rules: Rules
    holder: str
    address: str
    key: KeyInfo | None = None
    headers: dict[str, str] = field(default_factory=dict)
    reached_engine: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0
    masked: dict[str, int] = field(default_factory=dict)
    policies: tuple[str, ...] = ()

    def note(self, event: Event) -> None:
        """Count what an event of the engine says was used."""
        if isinstance(event, TextDelta | ReasoningDelta | ToolCallDelta):
            self.completion_tokens += 1
        elif isinstance(event, Usage):
            self.prompt_tokens, self.completion_tokens = event.prompt_tokens, event.completion_tokens


class Policy(ABC):
    """One rule of the port. ``figures`` are counters since the service started, for the Server screen."""

    name: ClassVar[str]

    @abstractmethod
    def wants(self, rules: Rules) -> bool:
        """Whether it has anything to do where these rules hold."""

    def figures(self) -> dict[str, int]:
        return {}


class Admission(Policy):
    @abstractmethod
    def admit(self, exchange: Exchange) -> AbstractAsyncContextManager[None]:
        """Entered before the request begins, left when it ended; raises LocalLLMError to refuse it."""


class Transform(Policy):
    @abstractmethod
    def around(self, exchange: Exchange, proceed: Proceed) -> Events:
        """The events that the client gets; ``proceed`` are those of everything further in."""

    async def around_embedding(self, exchange: Exchange, proceed: ProceedEmbed) -> EmbeddingResult:
        return await proceed()
