"""llama-server's stream as our events: counts, deltas, ends. One ``Answer`` follows one request, whatever its choices."""

from __future__ import annotations

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
from localllm.engines.llama_server.tool_text import ToolTextReader, new_call_id
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
from localllm.engines.text import StopMatcher

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
    """``settled``: ended, and its tokens are known. ``stopped``: by one of our stop strings, before the server's end."""

    index: int
    stop: StopMatcher
    reader: ToolTextReader | None
    calls: dict[int, int] = field(default_factory=dict)  # the server's index of a call → ours
    logprobs: list[TokenLogprob] = field(default_factory=list)
    tokens: int = 0
    finished: bool = False
    stopped: bool = False
    settled: bool = False


class Answer:
    """Feed it chunks in order until it is ``over``; then ``usage`` is complete.

    Stop strings are looked for here: the server keeps back what may become one and forgets it when the answer ends
    for another reason, and its chat stream does not say which one was met.
    """

    def __init__(
        self,
        *,
        context_length: int,
        choices: int,
        alternatives: int | None,
        stops: Sequence[str] = (),
        tool_names: Sequence[str] = (),
    ) -> None:
        self._context_length = context_length
        self._alternatives = alternatives
        self._choices = [
            _Choice(index, StopMatcher(stops), ToolTextReader(tool_names, index) if tool_names else None)
            for index in range(choices)
        ]
        self._last_finished: _Choice | None = None
        self._prompt: PromptProgress | None = None
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

    def over(self, first: int, count: int) -> bool:
        """Whether the rest of these choices' stream can be left unread, because stop strings ended some of them."""
        choices = self._choices[first : first + count]
        return any(choice.stopped for choice in choices) and all(choice.settled for choice in choices)

    def usage(self, queue_ms: float, tier: Tier) -> Usage:
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self._prompt.cache if self._prompt is not None else 0,
            completion_tokens=sum(choice.tokens for choice in self._choices),
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
            choice = self._choices[first_choice + piece.index]
            if not choice.finished:
                self._count(
                    choice, chunk.timings.predicted_n if chunk.timings is not None else 0, chunk.timings
                )
                self._piece(piece, choice, events)
        if chunk.usage is not None and (ended := self._last_finished) is not None and not ended.stopped:
            self._count(ended, chunk.usage.completion_tokens, chunk.timings)
            ended.settled = True
        return events

    def text(self, chunk: TextChunk, first_choice: int) -> list[Event]:
        """Events of one chunk of ``/completion``."""
        _raise_error(chunk.error)
        if chunk.prompt_progress is not None:
            return self._progress(chunk.prompt_progress)
        choice = self._choices[first_choice + chunk.index]
        events: list[Event] = []
        if choice.finished:
            return events
        self._require_start()
        self._count(choice, chunk.tokens_predicted, chunk.timings)
        self._say(choice, chunk.content, chunk.completion_probabilities, events)
        if chunk.stop and not choice.finished:
            self._finish(choice, chunk.stop_type, events)
            choice.settled = True
        return events

    def _progress(self, progress: PromptProgress) -> list[Event]:
        if self._prompt is None:
            self._prompt = progress
            return [Started(progress.total, progress.cache, self._context_length)]
        if self.generated:
            return []  # another choice's prompt, while one already speaks
        return [Progress(progress.processed, progress.total)]

    def _piece(self, piece: ChunkChoice, choice: _Choice, events: list[Event]) -> None:
        delta = piece.delta
        if delta.content or piece.logprobs is not None:
            self._require_start()
            found = piece.logprobs.content if piece.logprobs is not None else ()
            self._say(choice, delta.content or "", found, events)
        if delta.reasoning_content:
            self._require_start()
            self.generated += 1
            self._reasoning_tokens += 1  # the server sends one chunk per token
            events.append(ReasoningDelta(delta.reasoning_content, choice.index))
        for part in delta.tool_calls:
            self.generated += 1
            self._tool_call(choice, part, events)
        if piece.finish_reason is not None and not choice.finished:
            self._require_start()
            self._finish(choice, piece.finish_reason, events)

    def _say(
        self, choice: _Choice, text: str, found: Sequence[TokenProbability], events: list[Event]
    ) -> None:
        if self._alternatives is not None:
            choice.logprobs += [_logprob(token, self._alternatives) for token in found]
        if not text:
            return
        self.generated += 1
        if choice.reader is None:
            self._show(choice, text, events)
            return
        for event in choice.reader.feed(text):
            if isinstance(event, TextDelta):
                self._show(choice, event.text, events)
            else:
                events.append(event)

    def _show(self, choice: _Choice, text: str, events: list[Event]) -> None:
        shown = choice.stop.feed(text)
        if shown:
            events.append(self._delta(choice, shown))
        if choice.stop.matched is not None and not choice.finished:
            choice.finished = choice.stopped = choice.settled = True
            if choice.logprobs:
                events.append(self._delta(choice, ""))
            events.append(Finished(FinishReason.STOP, choice.index, choice.stop.matched))

    def _delta(self, choice: _Choice, text: str) -> TextDelta:
        """This text, with the figures of every token since the last delta."""
        if not choice.logprobs:
            return TextDelta(text, choice.index)
        found, choice.logprobs = tuple(choice.logprobs), []
        return TextDelta(text, choice.index, found)

    def _tool_call(self, choice: _Choice, part: ToolCallPart, events: list[Event]) -> None:
        ours = choice.calls.get(part.index)
        function = part.function
        if ours is None:
            ours = choice.calls[part.index] = len(choice.calls)
            name = (function.name if function is not None else None) or ""
            events.append(ToolCallStart(ours, part.id or new_call_id(), name, choice.index))
        if function is not None and function.arguments:
            events.append(ToolCallDelta(ours, function.arguments, choice.index))

    def _finish(self, choice: _Choice, reason: str, events: list[Event]) -> None:
        called = bool(choice.calls)
        if choice.reader is not None:
            called = choice.reader.called
            for event in choice.reader.close():
                self._show(choice, event.text, events)
            if choice.finished:
                return
        held = choice.stop.flush()
        if held or choice.logprobs:
            events.append(self._delta(choice, held))
        choice.finished = True
        self._last_finished = choice
        finish = _REASONS.get(reason, FinishReason.STOP)
        if finish is not FinishReason.LENGTH:
            finish = FinishReason.TOOL_CALLS if called else FinishReason.STOP
        events.append(Finished(finish, choice.index))

    def _count(self, choice: _Choice, tokens: int, timings: Timings | None) -> None:
        """``tokens`` of this choice so far. Choices run side by side, so of times the longest counts."""
        choice.tokens = max(choice.tokens, tokens)
        if timings is not None:
            self._prefill_ms = max(self._prefill_ms or 0.0, timings.prompt_ms)
            self._decode_ms = max(self._decode_ms or 0.0, timings.predicted_ms)

    def _require_start(self) -> None:
        if self._prompt is None:
            raise GenerationFailed(
                "This llama-server does not report the prompt's tokens; it is too old.",
                hint="Update it, or unset engine.llama_server_path to use the bundled one.",
            )


def _logprob(token: TokenProbability, alternatives: int) -> TokenLogprob:
    top = tuple(_logprob(other, 0) for other in token.top_logprobs[:alternatives])
    logprob = token.logprob if token.logprob is not None else float("-inf")
    return TokenLogprob(token.token, logprob, bytes(token.bytes), token.id, top)


def _raise_error(error: WireError | None) -> None:
    if error is not None:
        raise GenerationFailed(error.message or "llama-server ended the answer with an error.")
