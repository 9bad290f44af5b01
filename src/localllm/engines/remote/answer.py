"""A remote's stream as our events: one ``Answer`` follows one request, whatever its choices. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from localllm.core.generation import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    TextDelta,
    Tier,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from localllm.engines.llama_server.tool_text import ToolTextReader, new_call_id
from localllm.engines.remote.wire import CallPart, Chance, Chances, Chunk, Piece, WireUsage

_REASONS = {
    "length": FinishReason.LENGTH,
    "max_tokens": FinishReason.LENGTH,
    "content_filter": FinishReason.CONTENT_FILTER,
}


@dataclass
class _Choice:
    index: int
    reader: ToolTextReader | None
    calls: dict[int, int] = field(default_factory=dict)
    finished: bool = False


class Answer:
    """Feed it chunks in order; at the end of the stream it is ``complete`` and ``usage`` has the remote's figures."""

    def __init__(
        self, *, context_length: int, choices: int, alternatives: int | None, tool_names: Sequence[str] = ()
    ) -> None:
        self._context_length = context_length
        self._alternatives = alternatives
        self._choices = [
            _Choice(index, ToolTextReader(tool_names, index) if tool_names else None)
            for index in range(choices)
        ]
        self._started = False
        self._counted: WireUsage | None = None
        self._chunks = 0
        self._reasoned = 0

    @property
    def complete(self) -> bool:
        return all(choice.finished for choice in self._choices)

    def usage(self, queue_ms: float, tier: Tier) -> Usage:
        """The remote's own figures; without any, a chunk of text counts as a token, as it nearly always is one."""
        counted = self._counted or WireUsage(completion_tokens=self._chunks)
        prompt, completion = counted.prompt_tokens_details, counted.completion_tokens_details
        return Usage(
            prompt_tokens=max(0, counted.prompt_tokens),
            cached_tokens=max(0, (prompt.cached_tokens or 0) if prompt else 0),
            completion_tokens=max(0, counted.completion_tokens),
            reasoning_tokens=(completion.reasoning_tokens if completion else None) or self._reasoned,
            accepted_prediction_tokens=(completion.accepted_prediction_tokens or 0) if completion else 0,
            rejected_prediction_tokens=(completion.rejected_prediction_tokens or 0) if completion else 0,
            queue_ms=queue_ms,
            served_tier=tier,
        )

    def read(self, chunk: Chunk) -> Iterator[Event]:
        if not self._started:
            self._started = True
            yield Started(None, None, self._context_length)
        for piece in chunk.choices:
            if 0 <= piece.index < len(self._choices) and not self._choices[piece.index].finished:
                yield from self._piece(piece, self._choices[piece.index])
        if chunk.usage is not None:
            self._counted = chunk.usage

    def _piece(self, piece: Piece, choice: _Choice) -> Iterator[Event]:
        delta = piece.delta
        thought = (delta.reasoning_content or delta.reasoning) if delta else None
        if thought:
            self._chunks += 1
            self._reasoned += 1
            yield ReasoningDelta(thought, choice.index)
        text = (delta.content if delta else piece.text) or ""
        logprobs = self._logprobs(piece.logprobs)
        if text or logprobs:
            self._chunks += 1
            if choice.reader is None:
                yield TextDelta(text, choice.index, logprobs)
            else:
                yield from choice.reader.feed(text)
        for position, part in enumerate((delta.tool_calls or ()) if delta else ()):
            self._chunks += 1
            yield from self._call(part, position, choice)
        if piece.finish_reason is not None:
            yield from self._finish(piece.finish_reason, choice)

    def _call(self, part: CallPart, position: int, choice: _Choice) -> Iterator[Event]:
        key = part.index if part.index is not None else position
        function = part.function
        if key not in choice.calls:
            choice.calls[key] = len(choice.calls)
            name = (function.name if function else None) or ""
            yield ToolCallStart(choice.calls[key], part.id or new_call_id(), name, choice.index)
        if function is not None and function.arguments:
            yield ToolCallDelta(choice.calls[key], function.arguments, choice.index)

    def _finish(self, said: str, choice: _Choice) -> Iterator[Event]:
        called = bool(choice.calls)
        if choice.reader is not None:
            called = choice.reader.called
            yield from choice.reader.close()
        choice.finished = True
        reason = _REASONS.get(said, FinishReason.TOOL_CALLS if called else FinishReason.STOP)
        yield Finished(reason, choice.index)

    def _logprobs(self, found: Chances | None) -> tuple[TokenLogprob, ...]:
        if found is None or self._alternatives is None:
            return ()
        if found.content is not None:
            return tuple(_chance(chance, self._alternatives) for chance in found.content)
        tops = found.top_logprobs or ()
        return tuple(
            TokenLogprob(
                token,
                logprob if logprob is not None else 0.0,
                token.encode(),
                top=_legacy_top(tops[at] if at < len(tops) else None, self._alternatives),
            )
            for at, (token, logprob) in enumerate(
                zip(found.tokens or (), found.token_logprobs or (), strict=False)
            )
        )


def _chance(chance: Chance, alternatives: int) -> TokenLogprob:
    return TokenLogprob(
        chance.token,
        chance.logprob if chance.logprob is not None else float("-inf"),
        bytes(chance.bytes) if chance.bytes is not None else chance.token.encode(),
        top=tuple(_chance(other, 0) for other in (chance.top_logprobs or ())[:alternatives]),
    )


def _legacy_top(top: dict[str, float] | None, alternatives: int) -> tuple[TokenLogprob, ...]:
    ordered = sorted((top or {}).items(), key=lambda item: -item[1])
    return tuple(TokenLogprob(token, logprob, token.encode()) for token, logprob in ordered[:alternatives])
