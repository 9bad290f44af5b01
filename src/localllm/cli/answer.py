"""One answer over the port, as any OpenAI client would ask for it, with the figures a person wants to see."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from localllm.client.client import Client
    from localllm.core.control import InstanceState


class Figures(Struct, frozen=True, kw_only=True):
    """``ttft_ms`` from sending the request to the first text, ``tokens_per_second`` between first and last token.

    Both as this client saw them. None = the answer was too short, or nobody can tell.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    ttft_ms: float | None = None
    tokens_per_second: float | None = None
    total_ms: float | None = None
    context_length: int | None = None
    memory_bytes: int | None = None
    engine: str | None = None


class Answer(Struct, frozen=True, kw_only=True):
    """``reasoning`` is what a thinking model wrote before its answer."""

    model: str
    text: str
    reasoning: str | None = None
    finish_reason: str | None
    figures: Figures


class _Delta(Struct, frozen=True):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None

    @property
    def thought(self) -> str:
        """Under whichever name the port is set to send it."""
        return self.reasoning_content or self.reasoning or ""


class _Choice(Struct, frozen=True):
    delta: _Delta = _Delta()
    finish_reason: str | None = None


class _Cached(Struct, frozen=True):
    cached_tokens: int | None = None


class _Usage(Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    prompt_tokens_details: _Cached = _Cached()


class _Chunk(Struct, frozen=True):
    choices: tuple[_Choice, ...] = ()
    usage: _Usage | None = None


async def ask(
    client: Client,
    body: dict[str, Any],
    instance: InstanceState,
    on_text: Callable[[str], None],
    on_reasoning: Callable[[str], None] = lambda text: None,
) -> Answer:
    """Stream one answer; ``on_text`` gets each piece as it comes, without the blanks before the first word.

    Raises what the port answers: ContextLengthExceeded, QueueFull, EngineCrashed …
    """
    body = {**body, "stream_options": {"include_usage": True}}
    pieces: list[str] = []
    thoughts: list[str] = []
    finish_reason: str | None = None
    usage: _Usage | None = None
    sent = time.monotonic()
    first = last = None
    async for raw in client.stream_completion(body):
        chunk = msgspec.convert(raw, _Chunk)
        usage = chunk.usage or usage
        for choice in chunk.choices:
            finish_reason = choice.finish_reason or finish_reason
            text, thought = choice.delta.content or "", choice.delta.thought
            if text or thought:
                last = time.monotonic()
                first = first or last
            if thought:
                thoughts.append(thought)
                on_reasoning(thought)
            if text := text if pieces else text.lstrip():
                pieces.append(text)
                on_text(text)
    return Answer(
        model=instance.model,
        text="".join(pieces),
        reasoning="".join(thoughts) or None,
        finish_reason=finish_reason,
        figures=_figures(usage, sent, first, last, instance),
    )


def _figures(
    usage: _Usage | None, sent: float, first: float | None, last: float | None, instance: InstanceState
) -> Figures:
    rate = None
    if usage is not None and first is not None and last is not None and last > first:
        rate = (usage.completion_tokens - 1) / (last - first)
    return Figures(
        prompt_tokens=usage.prompt_tokens if usage else None,
        cached_tokens=usage.prompt_tokens_details.cached_tokens if usage else None,
        completion_tokens=usage.completion_tokens if usage else None,
        ttft_ms=(first - sent) * 1000 if first is not None else None,
        tokens_per_second=rate,
        total_ms=(time.monotonic() - sent) * 1000,
        context_length=instance.context_length,
        memory_bytes=instance.measured_bytes or instance.planned_bytes,
        engine=instance.engine,
    )


def sentence(figures: Figures) -> str:
    """``42.1 tok/s · TTFT 180 ms · 31 prompt tokens (12 cached) · 96 answered · context 131/8192 · memory 0.4 GiB``."""
    from localllm.core.units import format_bytes, format_duration

    parts = []
    if figures.tokens_per_second is not None:
        parts.append(f"{figures.tokens_per_second:.1f} tok/s")
    if figures.ttft_ms is not None:
        parts.append(f"TTFT {format_duration(figures.ttft_ms / 1000)}")
    if figures.prompt_tokens is not None and figures.completion_tokens is not None:
        cached = f" ({figures.cached_tokens} cached)" if figures.cached_tokens else ""
        parts.append(f"{figures.prompt_tokens} prompt tokens{cached}")
        parts.append(f"{figures.completion_tokens} answered")
        if figures.context_length:
            used = figures.prompt_tokens + figures.completion_tokens
            parts.append(f"context {used}/{figures.context_length}")
    if figures.memory_bytes:
        parts.append(f"memory {format_bytes(figures.memory_bytes)}")
    if figures.engine:
        parts.append(figures.engine)
    return " · ".join(parts)
