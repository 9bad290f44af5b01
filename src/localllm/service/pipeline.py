"""The way every request takes, from the port, a chat or a batch: lease a place, check, stream, account.

``Pipeline.generate`` is an async generator around the engine's own. Per token it looks at the event's type, adds to a
counter and reads the clock; records, metrics and log lines are written once, when the request ends, however it ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Protocol, cast

from msgspec import Struct, field
from msgspec.structs import replace

from localllm.core.control import RequestPhase, RequestRecord
from localllm.core.errors import Cancelled, LocalLLMError, Unsupported
from localllm.core.generation import (
    ChatPrompt,
    Event,
    Finished,
    GenerationRequest,
    Progress,
    Prompt,
    ReasoningDelta,
    Sampling,
    Started,
    TextDelta,
    Tier,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from localllm.engines.base import Capability, EmbeddingResult, Instance
from localllm.service.activity import Activity, Running
from localllm.service.capabilities import check_request
from localllm.service.lease import Lease, Leasing, OnWaiting, Waiting

log = logging.getLogger(__name__)

CLIENT_LEFT = 499
NO_DEFAULTS = Sampling()


class Call(Struct, kw_only=True):
    """One generation asked for. ``model`` is the name as asked; ``received`` is ``time.monotonic()`` seconds.

    ``on_waiting`` hears about loading and queueing, so that a stream can say so before the first token;
    ``on_finished`` gets the request's record, whatever its end; ``on_served`` the model that answers for an alias,
    before the first event.
    """

    id: str
    endpoint: str
    model: str
    request: GenerationRequest
    client: str | None = None
    stream: bool = False
    received: float = field(default_factory=time.monotonic)
    on_waiting: OnWaiting | None = None
    on_finished: Callable[[RequestRecord], None] | None = None
    on_served: Callable[[str], None] | None = None


class EmbedCall(Struct, kw_only=True):
    """One embedding request: texts or token lists."""

    id: str
    endpoint: str
    model: str
    inputs: Sequence[str | Sequence[int]]
    client: str | None = None
    received: float = field(default_factory=time.monotonic)


class Observer(Protocol):
    """Told once about each request that ended: the request records and the metrics."""

    def finished(self, record: RequestRecord, gaps_ms: Sequence[float]) -> None:
        """``gaps_ms`` are the times between tokens, in milliseconds; must return at once."""
        ...


class Pipeline:
    """Generation, embedding and token counting for whoever asks, with everything accounted for."""

    def __init__(
        self,
        models: Leasing,
        activity: Activity,
        observers: Sequence[Observer] = (),
        *,
        status_of: Callable[[LocalLLMError], int] = lambda error: 500,
        max_output_tokens: int | None = None,
    ) -> None:
        self.models = models
        self.activity = activity
        self.observers = tuple(observers)
        self.status_of = status_of
        self.max_output_tokens = max_output_tokens

    async def generate(self, call: Call) -> AsyncGenerator[Event, None]:
        """Stream the engine's events for one request; closing the iterator frees its place in the engine.

        Raises:
            LocalLLMError: before the first event, or in the middle of the stream when the engine fails.
        """
        with self._accounted(call) as account:
            async with self.models.lease(
                call.model, tier=call.request.tier, on_waiting=account.waiting
            ) as lease:
                account.admitted(lease)
                check_request(call.request, lease.info, call.model)
                request = self._capped(_with_defaults(call.request, lease.sampling))
                async with aclosing(_closable(lease.instance, request)) as events:
                    async for event in events:
                        account.event(event)
                        yield event

    async def embed(self, call: EmbedCall) -> EmbeddingResult:
        """Embed the call's inputs.

        Raises:
            Unsupported: the model gives no embeddings.
            ContextLengthExceeded: an input is longer than the model's context.
        """
        with self._accounted(call) as account:
            async with self.models.lease(call.model, embedding=True, on_waiting=account.waiting) as lease:
                account.admitted(lease)
                _require(lease, Capability.EMBEDDING, "model")
                result = await lease.instance.embed(call.inputs)
                account.prompt_tokens = result.prompt_tokens
            return result

    async def count_tokens(self, model: str, prompt: Prompt) -> int:
        """Tokens this prompt would take, template and special tokens included."""
        async with self.models.lease(model) as lease:
            needed = Capability.CHAT if isinstance(prompt, ChatPrompt) else Capability.TOKENIZE
            _require(lease, needed, "messages" if needed is Capability.CHAT else "prompt")
            return await lease.instance.count_tokens(prompt)

    async def tokenize(self, model: str, text: str, *, add_special: bool = False) -> list[int]:
        async with self.models.lease(model) as lease:
            _require(lease, Capability.TOKENIZE, "model")
            return await lease.instance.tokenize(text, add_special=add_special)

    async def detokenize(self, model: str, tokens: Sequence[int]) -> str:
        async with self.models.lease(model) as lease:
            _require(lease, Capability.TOKENIZE, "model")
            return await lease.instance.detokenize(tokens)

    def _capped(self, request: GenerationRequest) -> GenerationRequest:
        ceiling = self.max_output_tokens
        if ceiling is None or (request.max_tokens is not None and request.max_tokens <= ceiling):
            return request
        return replace(request, max_tokens=ceiling)

    @contextmanager
    def _accounted(self, call: Call | EmbedCall) -> Iterator[_Account]:
        """Account for one request, however it ends."""
        account = _Account(call, self.activity)
        try:
            yield account
        except LocalLLMError as error:
            account.error = error
            raise
        except (GeneratorExit, asyncio.CancelledError):
            account.error = Cancelled("The client went away.")
            raise
        except Exception:
            account.error = LocalLLMError("Something went wrong inside localllm.")
            raise
        finally:
            self._finish(account)

    def _status(self, error: LocalLLMError | None) -> int:
        """200, the error's HTTP status, or 499 for a client that left (as nginx counts it)."""
        if error is None:
            return 200
        return CLIENT_LEFT if isinstance(error, Cancelled) else self.status_of(error)

    def _finish(self, account: _Account) -> None:
        record = account.record(self._status(account.error))
        self.activity.end(account.running)
        if isinstance(account.call, Call) and account.call.on_finished is not None:
            account.call.on_finished(record)
        for observer in self.observers:
            observer.finished(record, account.gaps_ms)
        log.info(
            "request",
            extra={
                "request_id": record.id,
                "endpoint": record.endpoint,
                "model": record.model,
                "status": record.status,
                "code": record.error_code,
                "ttft_ms": record.ttft_ms,
                "total_ms": record.total_ms,
                "completion_tokens": record.completion_tokens,
            },
        )


class _Account:
    """What one request used and when: written as its events pass, read once at its end."""

    def __init__(self, call: Call | EmbedCall, activity: Activity) -> None:
        self.call = call
        self.running: Running = activity.begin(
            call.id, endpoint=call.endpoint, model=call.model, client=call.client, received=call.received
        )
        self.lease: Lease | None = None
        self.usage: Usage | None = None
        self.prompt_tokens: int | None = None
        self.finish_reason: str | None = None
        self.error: LocalLLMError | None = None
        self.gaps_ms: list[float] = []
        self._on_change = activity.on_change
        self._on_waiting = call.on_waiting if isinstance(call, Call) else None

    def waiting(self, waiting: Waiting) -> None:
        self.running.phase = waiting.phase
        self.running.queue_position = waiting.position
        self._on_change()
        if self._on_waiting is not None:
            self._on_waiting(waiting)

    def admitted(self, lease: Lease) -> None:
        self.lease = lease
        running = self.running
        running.model = lease.model
        running.phase = RequestPhase.PREFILL
        running.queue_position = None
        running.prefill_began = time.monotonic()
        running.context_length = lease.info.context_length

    def event(self, event: Event) -> None:
        """Account for one event; the branch for text comes first, since nearly all events are text."""
        running = self.running
        kind = type(event)
        if kind is TextDelta or kind is ReasoningDelta or kind is ToolCallDelta or kind is ToolCallStart:
            now = time.monotonic()
            running.completion_tokens += 1
            if running.last_token is None:
                running.first_token = now
                running.phase = RequestPhase.DECODE
            else:
                self.gaps_ms.append((now - running.last_token) * 1000)
            running.last_token = now
        elif isinstance(event, Started):
            running.prompt_tokens = event.prompt_tokens
            running.cached_tokens = event.cached_tokens
            running.context_length = event.context_length
        elif isinstance(event, Progress):
            running.prompt_tokens = event.total
            running.prefilled_tokens = event.processed
        elif isinstance(event, Usage):
            self.usage = event
            running.completion_tokens = event.completion_tokens
        elif isinstance(event, Finished):
            self.finish_reason = event.reason.value

    def record(self, status: int) -> RequestRecord:
        """The request as it is kept."""
        running, usage, lease = self.running, self.usage, self.lease
        rate = running.decode_rate()
        return RequestRecord(
            id=running.id,
            created_at=running.started_at,
            endpoint=running.endpoint,
            model=lease.model if lease else running.model,
            engine=lease.info.engine if lease else None,
            client=running.client,
            stream=isinstance(self.call, Call) and self.call.stream,
            status=status,
            error_code=self.error.code if self.error else None,
            finish_reason=self.finish_reason,
            prompt_tokens=usage.prompt_tokens if usage else running.prompt_tokens or self.prompt_tokens,
            cached_tokens=usage.cached_tokens if usage else running.cached_tokens,
            completion_tokens=running.completion_tokens,
            reasoning_tokens=usage.reasoning_tokens if usage else None,
            queue_ms=lease.queue_ms if lease else None,
            ttft_ms=(running.first_token - running.received) * 1000 if running.first_token else None,
            tpot_ms=1000 / rate if rate else None,
            total_ms=(time.monotonic() - running.received) * 1000,
            tokens_per_second=rate,
            context_length=running.context_length,
            tier=self._tier(),
        )

    def _tier(self) -> str | None:
        if self.usage is not None and self.usage.served_tier is not None:
            return self.usage.served_tier.value
        return self.call.request.tier.value if isinstance(self.call, Call) else Tier.DEFAULT.value


def _with_defaults(request: GenerationRequest, defaults: Sampling) -> GenerationRequest:
    """The request with the model's own sampling where it says nothing."""
    if defaults == NO_DEFAULTS:
        return request
    asked = request.sampling
    fields = {
        name: value
        for name in Sampling.__struct_fields__
        if getattr(asked, name) is None and (value := getattr(defaults, name)) is not None
    }
    return replace(request, sampling=replace(asked, **fields)) if fields else request


def _require(lease: Lease, capability: Capability, param: str) -> None:
    if capability not in lease.info.capabilities:
        raise Unsupported(
            f"{lease.model!r} on the engine {lease.info.engine!r} has no {capability.value}.",
            hint="Choose another model, or another engine for this one: localllm show MODEL",
            param=param,
        )


def _closable(instance: Instance, request: GenerationRequest) -> _Closable:
    # Engines write `generate` as an async generator; the contract types it as the wider AsyncIterator.
    return cast("_Closable", instance.generate(request))


class _Closable(Protocol):
    """An async iterator that can be closed, which is how a generation is cancelled."""

    def __aiter__(self) -> AsyncIterator[Event]: ...

    async def aclose(self) -> None: ...
