"""What the scheduler works on: a ``Job`` is one request, an ``Answer`` one of its choices.

An answer knows its tokens, how far they are computed, how to turn the next token into events and when it is done. It
does not know the KV cache: ``sequence`` is only a number lent by the pool, and an answer that is parked gives it back
and goes on later as if its prompt had grown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from localllm.core.generation import (
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    ReasoningDelta,
    Started,
    TextDelta,
    Tier,
    TokenLogprob,
    ToolCallStart,
    Usage,
)
from localllm.engines.llama_cpp.parsers import OutputParser
from localllm.engines.llama_cpp.prediction import Predictor
from localllm.engines.llama_cpp.sampling import Floats, Sampler, log_probabilities
from localllm.engines.text import StopMatcher, Utf8Stream

_AGEING_S = 20.0
"""Waiting this long lifts a request by one tier, so that no tier starves."""
_RANK = {Tier.PRIORITY: 0.0, Tier.DEFAULT: 1.0, Tier.FLEX: 2.0}


class Vocabulary(Protocol):
    """What an answer needs of the model."""

    def piece(self, token: int, *, special: bool) -> bytes: ...


class Job:
    """One request on its way through the scheduler. Times are monotonic seconds."""

    def __init__(
        self,
        number: int,
        request: GenerationRequest,
        prompt: Sequence[int],
        *,
        context_length: int,
        arrived: float,
    ) -> None:
        self.number = number
        self.request = request
        self.prompt_tokens = len(prompt)
        self.context_length = context_length
        self.arrived = arrived
        self.answers: list[Answer] = []
        self.cached_tokens = 0
        self.accepted = 0
        self.rejected = 0
        self.admitted_at: float | None = None
        self.first_token_at: float | None = None

    @property
    def done(self) -> bool:
        return all(answer.finished for answer in self.answers)

    def start(self, cached_tokens: int, now: float) -> Started | None:
        """The job's one ``Started``, when its first answer is admitted."""
        if self.admitted_at is not None:
            return None
        self.admitted_at = now
        self.cached_tokens = cached_tokens
        return Started(self.prompt_tokens, cached_tokens, self.context_length)

    def usage(self, now: float) -> Usage:
        admitted = self.admitted_at if self.admitted_at is not None else now
        first = self.first_token_at if self.first_token_at is not None else now
        return Usage(
            prompt_tokens=self.prompt_tokens,
            cached_tokens=self.cached_tokens,
            completion_tokens=sum(answer.generated for answer in self.answers),
            reasoning_tokens=sum(answer.reasoning_tokens for answer in self.answers),
            accepted_prediction_tokens=self.accepted,
            rejected_prediction_tokens=self.rejected,
            queue_ms=(admitted - self.arrived) * 1000,
            prefill_ms=(first - admitted) * 1000,
            decode_ms=(now - first) * 1000,
            served_tier=self.request.tier,
        )


class Answer:
    """One choice: ``tokens[:length]`` is the prompt and what was generated, ``computed`` of them are in the KV cache.

    ``limit`` is the length at which it ends; ``reserve`` the room that is kept for it.
    """

    def __init__(
        self,
        job: Job,
        choice: int,
        prompt: NDArray[np.int32],
        *,
        limit: int,
        reserve: int,
        sampler: Sampler,
        vocabulary: Vocabulary,
        end_tokens: frozenset[int],
        parser: OutputParser | None = None,
        predictor: Predictor | None = None,
        stops: Sequence[str] = (),
    ) -> None:
        self.job = job
        self.choice = choice
        self.tokens = np.empty(limit + 1, np.int32)
        self.tokens[: len(prompt)] = prompt
        self.prompt_length = len(prompt)
        self.length = len(prompt)
        self.computed = 0
        self.limit = limit
        self.reserve = reserve
        self.sampler = sampler
        self.predictor = predictor
        self.sequence: int | None = None
        self.finished: Finished | None = None
        self.generated = 0
        self.reasoning_tokens = 0
        self.waited_since: float | None = job.arrived
        self.waited = 0.0
        self._vocabulary = vocabulary
        self._end_tokens = end_tokens
        self._parser = parser
        self._utf8 = Utf8Stream()
        self._stop = StopMatcher(stops)
        self._wants_logprobs = job.request.logprobs
        self._logprobs: list[TokenLogprob] = []
        self._pending: list[str] = []
        self._called_tool = False
        self._reasoning = False

    @property
    def tier(self) -> Tier:
        return self.job.request.tier

    @property
    def decoding(self) -> bool:
        """Only the newest token is not computed yet."""
        return self.length - self.computed == 1

    def rank(self, now: float) -> tuple[float, float]:
        """Order of service, lowest first: tier lifted by the time it waited, then arrival."""
        waited = self.waited + (now - self.waited_since if self.waited_since is not None else 0.0)
        return _RANK[self.tier] - waited / _AGEING_S, self.job.arrived

    # ------------------------------------------------------------ tokens in, events out

    def take(self, row: Floats, now: float) -> int:
        """Sample the next token from its row of logits and account for it; text comes out with ``events``."""
        raw: tuple[float, list[tuple[int, float]]] | None = None
        kept: Floats | None = None
        if self._wants_logprobs is not None:
            kept = row.copy()
        token = self.sampler.sample(row)
        if kept is not None and self._wants_logprobs is not None:
            raw = log_probabilities(kept, token, self._wants_logprobs)
        if self.job.first_token_at is None:
            self.job.first_token_at = now
        ends = token in self._end_tokens
        self.sampler.accept(token, end=ends)
        self.tokens[self.length] = token
        self.length += 1
        self.generated += 1
        if ends:
            self.finished = Finished(FinishReason.STOP, self.choice)
            return token
        self._show(token, raw)
        if self.finished is None and self.length >= self.limit:
            self.finished = Finished(FinishReason.LENGTH, self.choice)
        return token

    def events(self) -> list[Event]:
        """What this step has to say, ``Finished`` included."""
        found: list[Event] = []
        text = "".join(self._pending)
        self._pending.clear()
        if self.finished is not None and self.finished.stop_sequence is None:
            text += self._stop.flush()
        if text:
            found += self._parse(text)
        if self.finished is not None:
            if self._parser is not None:
                found += self._label(self._parser.finish())
            if self._logprobs and self.finished.stop_sequence is None:
                # tokens that came to no text of their own, such as half a character
                found.append(TextDelta("", self.choice, tuple(self._logprobs)))
                self._logprobs.clear()
            reason = self.finished.reason
            if self._called_tool and reason is FinishReason.STOP:
                self.finished = replace(self.finished, reason=FinishReason.TOOL_CALLS)
            found.append(self.finished)
        return found

    def _show(self, token: int, raw: tuple[float, list[tuple[int, float]]] | None) -> None:
        piece = self._vocabulary.piece(token, special=False)
        if not piece and self._parser is not None:
            # a control token: shown only to a parser that reads it as a marker
            marker = self._vocabulary.piece(token, special=True)
            piece = marker if marker.decode("utf-8", "replace") in self._parser.markers else b""
        if raw is not None:
            top = tuple(self._logprob(other, value) for other, value in raw[1])
            self._logprobs.append(self._logprob(token, raw[0], top))
        text = self._stop.feed(self._utf8.feed(piece))
        if text:
            self._pending.append(text)
        if self._reasoning:
            self.reasoning_tokens += 1
        if self._stop.matched is not None:
            self.finished = Finished(FinishReason.STOP, self.choice, self._stop.matched)

    def _logprob(self, token: int, value: float, top: tuple[TokenLogprob, ...] = ()) -> TokenLogprob:
        piece = self._vocabulary.piece(token, special=True)
        return TokenLogprob(piece.decode("utf-8", "replace"), value, piece, token, top)

    def _parse(self, text: str) -> list[Event]:
        if self._parser is not None:
            return self._label(self._parser.feed(text))
        logprobs, self._logprobs = tuple(self._logprobs), []
        return [TextDelta(text, self.choice, logprobs)]

    def _label(self, events: list[Event]) -> list[Event]:
        """Put this answer's choice (and pending log probabilities) on what the parser found."""
        labelled: list[Event] = []
        for event in events:
            if isinstance(event, ToolCallStart):
                self._called_tool = True
            self._reasoning = isinstance(event, ReasoningDelta)
            if isinstance(event, TextDelta):
                logprobs, self._logprobs = tuple(self._logprobs), []
                event = TextDelta(event.text, self.choice, logprobs)
            elif self.choice and not isinstance(event, TextDelta):
                event = replace(event, choice=self.choice)
            labelled.append(event)
        return labelled
