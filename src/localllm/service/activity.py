"""What is being answered right now: plain counters that cost a token almost nothing, read a few times a second.

The pipeline writes here on every token, so nothing in ``Running`` formats, logs, locks or allocates. Whoever shows it
(the event stream, ``/metrics``) reads at its own, slower pace.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from localllm.core.control import ActiveRequest, Live, RequestPhase


@dataclass(slots=True, eq=False)
class Running:
    """One request under way; times are ``time.monotonic()`` seconds, ``started_at`` Unix seconds for people."""

    id: str
    endpoint: str
    model: str
    client: str | None
    received: float
    started_at: float
    phase: RequestPhase = RequestPhase.QUEUED
    queue_position: int | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    prefilled_tokens: int | None = None
    context_length: int | None = None
    completion_tokens: int = 0
    prefill_began: float | None = None
    first_token: float | None = None
    last_token: float | None = None

    def decode_rate(self) -> float | None:
        """Tokens per second since the first token; None before the second one."""
        if self.first_token is None or self.last_token is None or self.last_token <= self.first_token:
            return None
        return (self.completion_tokens - 1) / (self.last_token - self.first_token)

    def snapshot(self) -> ActiveRequest:
        return ActiveRequest(
            id=self.id,
            endpoint=self.endpoint,
            model=self.model,
            phase=self.phase,
            started_at=self.started_at,
            client=self.client,
            queue_position=self.queue_position,
            prompt_tokens=self.prompt_tokens,
            prefilled_tokens=self.prefilled_tokens,
            completion_tokens=self.completion_tokens,
            tokens_per_second=self.decode_rate(),
        )


@dataclass(slots=True)
class _Rate:
    """Tokens per second over about the last second, from a counter that only grows."""

    marks: list[tuple[float, int]] = field(default_factory=list)

    def read(self, now: float, total: int, *, window_s: float = 1.0) -> float | None:
        self.marks = [mark for mark in self.marks if now - mark[0] <= window_s * 2]
        base = next((mark for mark in self.marks if now - mark[0] <= window_s * 1.25), None)
        if not self.marks or now - self.marks[-1][0] >= window_s / 8:
            self.marks.append((now, total))
        if base is None or now - base[0] < window_s / 8:
            return None
        return (total - base[1]) / (now - base[0])


class Activity:
    """The requests that are open, the totals since start, and the figures of the status strip.

    ``quiet`` is set while nothing is open.
    """

    def __init__(self, on_change: Callable[[], None] = lambda: None) -> None:
        self.on_change = on_change
        self.open: dict[str, Running] = {}
        self.quiet = asyncio.Event()
        self.quiet.set()
        self.last_ttft_ms: float | None = None
        self.last_tokens_per_second: float | None = None
        self._context: tuple[int, int] | None = None
        self._finished_tokens = 0
        self._decode = _Rate()

    def begin(
        self, request_id: str, *, endpoint: str, model: str, client: str | None, received: float
    ) -> Running:
        running = Running(request_id, endpoint, model, client, received, time.time())
        self.open[request_id] = running
        self.quiet.clear()
        self.on_change()
        return running

    def end(self, running: Running) -> None:
        if self.open.pop(running.id, None) is None:
            return
        if not self.open:
            self.quiet.set()
        self._finished_tokens += running.completion_tokens
        self.last_tokens_per_second = running.decode_rate() or self.last_tokens_per_second
        if running.first_token is not None:
            self.last_ttft_ms = (running.first_token - running.received) * 1000
        if running.prompt_tokens is not None and running.context_length is not None:
            self._context = (running.prompt_tokens + running.completion_tokens, running.context_length)
        self.on_change()

    def requests(self) -> tuple[ActiveRequest, ...]:
        return tuple(running.snapshot() for running in self.open.values())

    def live(self, now: float | None = None) -> Live:
        """The status strip's figures; rates are over the last second of everything that runs."""
        now = time.monotonic() if now is None else now
        running = [r for r in self.open.values() if r.phase in (RequestPhase.PREFILL, RequestPhase.DECODE)]
        total = self._finished_tokens + sum(r.completion_tokens for r in self.open.values())
        decode = self._decode.read(now, total)
        context = self._context
        for r in running:
            if r.prompt_tokens is not None and r.context_length is not None:
                context = (r.prompt_tokens + r.completion_tokens, r.context_length)
        return Live(
            tokens_per_second=decode if running and decode else None,
            prefill_tokens_per_second=self._prefill_rate(now),
            last_ttft_ms=self.last_ttft_ms,
            last_tokens_per_second=self.last_tokens_per_second,
            running=len(running),
            waiting=len(self.open) - len(running),
            context_used=context[0] if context else None,
            context_length=context[1] if context else None,
        )

    def rate_of(self, model: str) -> float | None:
        """Tokens per second of everything that decodes on one model; None when nothing does."""
        rates = [r.decode_rate() for r in self.open.values() if r.model == model]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if known else None

    def _prefill_rate(self, now: float) -> float | None:
        rate = 0.0
        for r in self.open.values():
            if r.phase is RequestPhase.PREFILL and r.prefilled_tokens and r.prefill_began is not None:
                rate += (r.prefilled_tokens - (r.cached_tokens or 0)) / max(now - r.prefill_began, 1e-3)
        return rate or None
