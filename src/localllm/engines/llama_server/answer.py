"""llama-server's stream as our events: counts, deltas, ends. One ``Answer`` follows one request, whatever its choices."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field

from localllm.core.errors import GenerationFailed
from localllm.core.generation import (
    Event,
    Finished,
    FinishReason,
    Progress,
    ReasoningDelta,
    Started,
    TextDelta,
    Tier,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from localllm.engines.llama_server.tool_text import ToolTextReader
from localllm.engines.llama_server.wire import (
    ChatChunk,
    ChunkChoice,
    PromptProgress,
    TextChunk,
    Timings,
    TokenProbability,
    ToolCallPart,
    WireError,
)

_REASONS = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    "tool_calls": FinishReason.TOOL_CALLS,
    "eos": FinishReason.STOP,
    "word": FinishReason.STOP,
    "limit": FinishReason.LENGTH,
}


@dataclass
class _Choice:
    reader: ToolTextReader | None = None
    calls: dict[int, int] = field(default_factory=dict)  # the server's index of a call → ours
    finished: bool = False


class Answer:
    """Feed it chunks in order; ``usage`` is complete once every choice has finished."""

    def __init__(
        self, *, context_length: int, choices: int, alternatives: int | None, tool_names: Sequence[str] = ()
    ) -> None:
        self._context_length = context_length
        self._alternatives = alternatives
        self._choices = [
            _Choice(ToolTextReader(tool_names, index) if tool_names else None) for index in range(choices)
        ]
        self._prompt: PromptProgress | None = None
        self._completion_tokens = 0
        self._reasoning_tokens = 0
        self._prefill_ms: float | None = None
        self._decode_ms: float | None = None
        self.generated = 0
        """Chunks of text so far: about the tokens, for the live figures."""

    @property
    def prompt_tokens(self) -> int:
        """0 until the server has counted them."""
        return self._prompt.total if self._prompt is not None else 0

    @property
    def complete(self) -> bool:
        return all(choice.finished for choice in self._choices)

    def usage(self, queue_ms: float, tier: Tier) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self._prompt.cache if self._prompt is not None else 0,
            completion_tokens=self._completion_tokens,
            reasoning_tokens=self._reasoning_tokens,
            queue_ms=queue_ms,
            prefill_ms=self._prefill_ms,
            decode_ms=self._decode_ms,
            served_tier=tier,
        )

    # ------------------------------------------------------------ chunks

    def chat(self, chunk: ChatChunk, first_choice: int) -> list[Event]:
        """Events of one chunk of ``/v1/chat/completions``; its choices count from ``first_choice``."""
        _raise_error(chunk.error)
        events: list[Event] = []
        if chunk.prompt_progress is not None:
            events += self._progress(chunk.prompt_progress)
        for piece in chunk.choices:
            self._piece(piece, first_choice + piece.index, events)
        if chunk.usage is not None:
            self._completion_tokens += chunk.usage.completion_tokens
            self._time(chunk.timings)
        return events

    def text(self, chunk: TextChunk, first_choice: int) -> list[Event]:
        """Events of one chunk of ``/completion``."""
        _raise_error(chunk.error)
        if chunk.prompt_progress is not None:
            return self._progress(chunk.prompt_progress)
        index = first_choice + chunk.index
        events: list[Event] = []
        if chunk.content:
            self._require_start()
            self.generated += 1
            events.append(TextDelta(chunk.content, index, self._logprobs(chunk.completion_probabilities)))
        if chunk.stop:
            self._completion_tokens += chunk.tokens_predicted
            self._time(chunk.timings)
            self._choices[index].finished = True
            reason = _REASONS.get(chunk.stop_type, FinishReason.STOP)
            events.append(Finished(reason, index, chunk.stopping_word or None))
        return events

    def _progress(self, progress: PromptProgress) -> list[Event]:
        if self._prompt is None:
            self._prompt = progress
            return [Started(progress.total, progress.cache, self._context_length)]
        if self.generated:
            return []  # another choice's prompt, while one already speaks
        return [Progress(progress.processed, progress.total)]

    def _piece(self, piece: ChunkChoice, index: int, events: list[Event]) -> None:
        delta = piece.delta
        choice = self._choices[index]
        if delta.content:
            self._require_start()
            self.generated += 1
            if choice.reader is None:
                found = self._logprobs(piece.logprobs.content) if piece.logprobs is not None else ()
                events.append(TextDelta(delta.content, index, found))
            else:
                events += choice.reader.feed(delta.content)
        if delta.reasoning_content:
            self._require_start()
            self.generated += 1
            self._reasoning_tokens += 1  # the server sends one chunk per token
            events.append(ReasoningDelta(delta.reasoning_content, index))
        for part in delta.tool_calls:
            self.generated += 1
            self._tool_call(choice, part, index, events)
        if piece.finish_reason is not None:
            self._require_start()
            self._finish(choice, piece.finish_reason, index, events)

    def _tool_call(self, choice: _Choice, part: ToolCallPart, index: int, events: list[Event]) -> None:
        ours = choice.calls.get(part.index)
        function = part.function
        if ours is None:
            ours = choice.calls[part.index] = len(choice.calls)
            name = (function.name if function is not None else None) or ""
            events.append(ToolCallStart(ours, part.id or f"call_{secrets.token_hex(12)}", name, index))
        if function is not None and function.arguments:
            events.append(ToolCallDelta(ours, function.arguments, index))

    def _finish(self, choice: _Choice, reason: str, index: int, events: list[Event]) -> None:
        if choice.finished:
            return
        choice.finished = True
        finish = _REASONS.get(reason, FinishReason.STOP)
        if choice.reader is not None:
            events += choice.reader.close()
            if choice.reader.called and finish is FinishReason.STOP:
                finish = FinishReason.TOOL_CALLS
        elif finish is FinishReason.TOOL_CALLS and not choice.calls:
            finish = FinishReason.STOP
        events.append(Finished(finish, index))

    def _require_start(self) -> None:
        if self._prompt is None:
            raise GenerationFailed(
                "This llama-server does not report the prompt's tokens; it is too old.",
                hint="Update it, or unset engine.llama_server_path to use the bundled one.",
            )

    def _time(self, timings: Timings | None) -> None:
        """Choices run side by side: the longest counts."""
        if timings is not None:
            self._prefill_ms = max(self._prefill_ms or 0.0, timings.prompt_ms)
            self._decode_ms = max(self._decode_ms or 0.0, timings.predicted_ms)

    def _logprobs(self, found: Sequence[TokenProbability]) -> tuple[TokenLogprob, ...]:
        if self._alternatives is None:
            return ()
        return tuple(_logprob(token, self._alternatives) for token in found)


def _logprob(token: TokenProbability, alternatives: int) -> TokenLogprob:
    top = tuple(_logprob(other, 0) for other in token.top_logprobs[:alternatives])
    logprob = token.logprob if token.logprob is not None else float("-inf")
    return TokenLogprob(token.token, logprob, bytes(token.bytes), token.id, top)


def _raise_error(error: WireError | None) -> None:
    if error is not None:
        raise GenerationFailed(error.message or "llama-server ended the answer with an error.")
