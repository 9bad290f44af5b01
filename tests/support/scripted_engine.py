"""An engine without a model: it does exactly what a test tells it to, and keeps the engine contract while doing so.

Tests of the service, the port and the app run against it, so that they can have what a real model won't give on
demand: a crash at the third token, a character split in two, a hang, a tool call, a million tokens. What it answers
is a script, a list of steps; without one it echoes the last user message. ``tests/contract`` holds it to the same
suite as the real engines. The steps are in ``tests.support.script``.

    engine = ScriptedEngine()
    engine.enqueue(Text("Hello"), Crash(exit_code=-6))      # the next request gets this
    engine.when("weather", CallTool("weather", '{"city":"Oslo"}'))  # every request whose last message has the word
    gate = asyncio.Event(); engine.enqueue(Text("one"), Wait(gate), Text(" two"))
"""

from __future__ import annotations

import asyncio
import codecs
import itertools
import json
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field

from localllm.core.errors import (
    Cancelled,
    ContextLengthExceeded,
    EngineCrashed,
    EngineStalled,
    LocalLLMError,
    Unsupported,
)
from localllm.core.generation import (
    ChatPrompt,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Grammar,
    JsonObject,
    JsonSchema,
    Progress,
    Prompt,
    ReasoningDelta,
    Started,
    TextDelta,
    TextPrompt,
    TokenLogprob,
    TokenPrompt,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from localllm.core.launch import LaunchPlan
from localllm.engines.base import (
    Capability,
    EmbeddingResult,
    Engine,
    EngineStatus,
    Exit,
    Instance,
    InstanceInfo,
    InstanceStats,
    LoadProgress,
)
from tests.support.script import (
    CallTool,
    Crash,
    End,
    Fail,
    Flood,
    Hang,
    Prefill,
    Raw,
    Reasoning,
    Script,
    Step,
    Text,
    Wait,
    echo,
    has_image,
    last_text,
    split_at_start,
    text_of,
)
from tests.support.scripted_text import WORD, StopFilter, Vocabulary, common_prefix, logprob, vector

DEFAULT_CAPABILITIES = frozenset(Capability) - {Capability.VISION, Capability.GRAMMAR, Capability.PREDICTION}


class ScriptedEngine(Engine):
    """Every instance of it shares its scripts and its notes of what was asked.

    Notes for tests: ``requests`` (every generation asked, in order), ``calls`` (how many), ``cancelled`` (ids whose
    stream was closed early), ``loads`` (plans), ``embedded`` (inputs), ``instances``.
    """

    name = "scripted"

    def __init__(
        self,
        *,
        capabilities: frozenset[Capability] = DEFAULT_CAPABILITIES,
        token_timeout_s: float | None = None,
        available: bool = True,
    ) -> None:
        self.capabilities = capabilities
        self.token_timeout_s = token_timeout_s
        self.available = available
        self.load_gate: asyncio.Event | None = None
        self.load_failures: deque[LocalLLMError] = deque()
        self.requests: list[GenerationRequest] = []
        self.cancelled: list[str] = []
        self.loads: list[LaunchPlan] = []
        self.embedded: list[str | Sequence[int]] = []
        self.instances: list[ScriptedInstance] = []
        self.vocabulary = Vocabulary()
        self._queue: deque[Script] = deque()
        self._by_word: list[tuple[str, Script]] = []

    @property
    def calls(self) -> int:
        return len(self.requests)

    def enqueue(self, *steps: Step) -> None:
        """The next request that no ``when`` claims is answered with these steps."""
        self._queue.append(steps)

    def when(self, word: str, *steps: Step, script: Script | None = None) -> None:
        """Answer every request whose last message contains ``word`` with these steps (or this function's)."""
        self._by_word.append((word, steps if script is None else script))

    def script_for(self, request: GenerationRequest) -> Sequence[Step]:
        said = last_text(request.prompt)
        chosen: Script | None = next((script for word, script in self._by_word if word in said), None)
        if chosen is None and self._queue:
            chosen = self._queue.popleft()
        if chosen is None:
            return echo(request)
        return chosen(request) if callable(chosen) else chosen

    async def status(self) -> EngineStatus:
        if self.available:
            return EngineStatus(name=self.name, available=True, version="1")
        return EngineStatus(name=self.name, available=False, reason="The test switched it off.")

    async def load(self, plan: LaunchPlan, on_progress: Callable[[LoadProgress], None]) -> ScriptedInstance:
        self.loads.append(plan)
        on_progress(LoadProgress("weights", 0.0))
        if self.load_gate is not None:
            await self.load_gate.wait()
        if self.load_failures:
            raise self.load_failures.popleft()
        on_progress(LoadProgress("weights", 1.0))
        instance = ScriptedInstance(self, plan)
        self.instances.append(instance)
        return instance


@dataclass
class _Choice:
    """What one choice has said so far."""

    index: int
    tokens_left: int
    stop: StopFilter
    decoder: codecs.IncrementalDecoder = field(
        default_factory=lambda: codecs.getincrementaldecoder("utf-8")("replace")
    )
    tokens: int = 0
    reasoning_tokens: int = 0
    tool_calls: int = 0
    finished: Finished | None = None
    logprobs: list[TokenLogprob] = field(default_factory=list)

    def delta(self, text: str) -> TextDelta:
        """This text, with the figures of every token since the last delta (a token may be held back)."""
        figures, self.logprobs = tuple(self.logprobs), []
        return TextDelta(text, self.index, figures)

    def take(self) -> bool:
        """Spend one token; False when the answer may not grow any more."""
        if self.tokens_left <= 0:
            self.finished = Finished(FinishReason.LENGTH, self.index)
            return False
        self.tokens_left -= 1
        self.tokens += 1
        return True


class ScriptedInstance(Instance):
    def __init__(self, engine: ScriptedEngine, plan: LaunchPlan) -> None:
        super().__init__()
        self.engine = engine
        self.plan = plan
        self.info = InstanceInfo(
            engine=engine.name,
            engine_version="1",
            context_length=plan.context_length,
            parallel=plan.parallel,
            capabilities=engine.capabilities,
        )
        self._slots = asyncio.Semaphore(plan.parallel)
        self._running = 0
        self._waiting = 0
        self._totals = {"prompt": 0, "cached": 0, "completion": 0}
        self._cached: tuple[int, ...] = ()
        self._ids = itertools.count(1)

    # ------------------------------------------------------------ generation

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self.engine.requests.append(request)
        self._require_alive()
        self._require_supported(request)
        prompt = self._encode(request.prompt)
        context = self.info.context_length
        if len(prompt) >= context:
            raise ContextLengthExceeded(len(prompt), context)
        script = self.engine.script_for(request)
        ended = False
        await self._enter()
        try:
            cached = common_prefix(prompt, self._cached) if request.cache_prompt else 0
            cached = min(cached, max(0, len(prompt) - 1))
            self._cached = prompt
            room = min(context - len(prompt), request.max_tokens or context)
            started = Started(len(prompt), cached, context)
            usage = Usage(prompt_tokens=len(prompt), cached_tokens=cached, completion_tokens=0)
            async for event in self._answer(request, script, room, started, usage):
                yield event
            ended = True
        except LocalLLMError:
            ended = True
            raise
        finally:
            self._leave()
            if not ended:
                self.engine.cancelled.append(request.request_id)

    async def _answer(
        self, request: GenerationRequest, script: Sequence[Step], room: int, started: Started, usage: Usage
    ) -> AsyncIterator[Event]:
        before, steps = split_at_start(script)
        for step in before:
            if isinstance(step, Prefill):
                yield Progress(step.processed, usage.prompt_tokens)
            else:
                await self._control(step)
        await self._breathe()
        yield started
        completion = reasoning = 0
        for index in range(request.n):
            choice = _Choice(index, room, StopFilter((*request.stop, *self.plan.stop)))
            async for event in self._choice(choice, steps, request):
                yield event
            completion += choice.tokens
            reasoning += choice.reasoning_tokens
        self._totals["prompt"] += usage.prompt_tokens
        self._totals["cached"] += usage.cached_tokens
        self._totals["completion"] += completion
        yield Usage(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=completion,
            reasoning_tokens=reasoning,
            queue_ms=0.0,
            prefill_ms=1.0,
            decode_ms=float(completion),
            served_tier=request.tier,
        )

    async def _choice(
        self, choice: _Choice, steps: Sequence[Step], request: GenerationRequest
    ) -> AsyncIterator[Event]:
        for step in steps:
            if isinstance(step, End):
                choice.finished = Finished(step.reason, choice.index)
            elif isinstance(step, Wait | Hang | Crash | Fail):
                await self._control(step)
            else:
                for event in self._speak(choice, step, request):
                    await self._breathe()
                    yield event
            if choice.finished is not None:
                break
        held = choice.stop.flush()
        if held or choice.logprobs:
            yield choice.delta(held)
        reason = FinishReason.TOOL_CALLS if choice.tool_calls else FinishReason.STOP
        yield choice.finished or Finished(reason, choice.index)

    def _speak(self, choice: _Choice, step: Step, request: GenerationRequest) -> Iterator[Event]:
        match step:
            case Text(text):
                for word in WORD.findall(text):
                    yield from self._token(choice, word.encode(), request)
            case Raw(chunks):
                for chunk in chunks:
                    yield from self._token(choice, chunk, request)
            case Flood(tokens, word):
                for _ in range(tokens):
                    yield from self._token(choice, word.encode(), request)
            case Reasoning(text):
                for word in WORD.findall(text):
                    if not choice.take():
                        return
                    choice.reasoning_tokens += 1
                    yield ReasoningDelta(word, choice.index)
            case CallTool(name, arguments):
                if not choice.take():
                    return
                index = choice.tool_calls
                choice.tool_calls += 1
                yield ToolCallStart(index, f"call_{next(self._ids)}", name, choice.index)
                for piece in WORD.findall(arguments):
                    if not choice.take():
                        return
                    yield ToolCallDelta(index, piece, choice.index)
            case _:
                raise AssertionError(f"{step} may not stand here in a script")

    def _token(self, choice: _Choice, data: bytes, request: GenerationRequest) -> Iterator[TextDelta]:
        if choice.finished is not None or self._banned(data, request) or not choice.take():
            return
        text = choice.stop.feed(choice.decoder.decode(data))
        if request.logprobs is not None:
            choice.logprobs.append(logprob(data, request.logprobs))
        if choice.stop.hit is not None:
            choice.finished = Finished(FinishReason.STOP, choice.index, choice.stop.hit)
        if text:
            yield choice.delta(text)

    def _banned(self, data: bytes, request: GenerationRequest) -> bool:
        banned = [token for token, bias in request.sampling.logit_bias.items() if bias <= -100]
        return any(self.engine.vocabulary.decode((token,)).encode() == data for token in banned)

    async def _control(self, step: Step) -> None:
        match step:
            case Wait(event):
                await self._until(event)
            case Hang():
                await self._until(asyncio.Event(), self.engine.token_timeout_s)
            case Crash(exit_code, stderr_tail):
                self.crash(exit_code, stderr_tail)
                self._require_alive()
            case Fail(error):
                raise error
            case _:
                raise AssertionError(f"{step} may not stand before Start")

    async def _until(self, event: asyncio.Event, timeout_s: float | None = None) -> None:
        async with asyncio.TaskGroup() as group:
            waiter: asyncio.Future[object] = group.create_task(event.wait())
            ended: asyncio.Future[object] = self.exited  # type: ignore[assignment]
            done, _ = await asyncio.wait(
                {waiter, ended}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            waiter.cancel()
        self._require_alive()
        if not done:
            raise EngineStalled(f"No token for {timeout_s} s.", hint="The engine is restarted.")

    async def _breathe(self) -> None:
        await asyncio.sleep(0)
        self._require_alive()

    async def _enter(self) -> None:
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        self._running += 1

    def _leave(self) -> None:
        self._running -= 1
        self._slots.release()

    # ------------------------------------------------------------ the rest of the contract

    def crash(self, exit_code: int = -6, stderr_tail: str = "GGML_ASSERT failed") -> None:
        """Die as a process would: open requests fail, ``exited`` says why."""
        if not self.exited.done():
            cause = f"The engine's process ended with exit code {exit_code}."
            self.exited.set_result(
                Exit(expected=False, exit_code=exit_code, cause=cause, stderr_tail=stderr_tail)
            )

    def _require_alive(self) -> None:
        if not self.exited.done():
            return
        end = self.exited.result()
        if end.expected:
            raise Cancelled("The model was unloaded.")
        raise EngineCrashed(
            end.cause,
            details={"cause": end.cause, "exit_code": end.exit_code, "stderr_tail": end.stderr_tail},
        )

    def _require_supported(self, request: GenerationRequest) -> None:
        prompt = request.prompt
        needs: list[tuple[bool, Capability, str]] = [
            (request.logprobs is not None, Capability.LOGPROBS, "logprobs"),
            (request.n > 1, Capability.MULTIPLE_CHOICES, "n"),
            (request.prediction is not None, Capability.PREDICTION, "prediction"),
            (request.sampling.seed is not None, Capability.SEED, "seed"),
            (bool(request.sampling.logit_bias), Capability.LOGIT_BIAS, "logit_bias"),
            (isinstance(request.constraint, Grammar), Capability.GRAMMAR, "grammar"),
            (
                isinstance(request.constraint, JsonObject | JsonSchema),
                Capability.JSON_SCHEMA,
                "response_format",
            ),
            (isinstance(prompt, ChatPrompt) and bool(prompt.tools), Capability.TOOLS, "tools"),
            (isinstance(prompt, ChatPrompt) and has_image(prompt), Capability.VISION, "messages"),
        ]
        for needed, capability, param in needs:
            if needed and capability not in self.info.capabilities:
                raise Unsupported(f"The scripted engine cannot do {capability.value}.", param=param)

    def _encode(self, prompt: Prompt) -> tuple[int, ...]:
        vocabulary = self.engine.vocabulary
        match prompt:
            case TokenPrompt(tokens):
                vocabulary.decode(tokens)
                return tokens
            case TextPrompt(text):
                return tuple(vocabulary.encode(text))
            case ChatPrompt():
                said = "".join(f" <{message.role}> {text_of(message)}" for message in prompt.messages)
                tools = "".join(f" {tool.name} {json.dumps(tool.parameters)}" for tool in prompt.tools)
                answer = "" if prompt.continue_final_message else " <assistant>"
                return tuple(vocabulary.encode(f"{tools}{said}{answer}"))

    async def embed(self, inputs: Sequence[str | Sequence[int]]) -> EmbeddingResult:
        self._require_alive()
        if Capability.EMBEDDING not in self.info.capabilities:
            raise Unsupported("The scripted engine cannot embed.", param="model")
        self.engine.embedded.extend(inputs)
        vectors, total = [], 0
        for text in inputs:
            tokens = self.engine.vocabulary.encode(text) if isinstance(text, str) else list(text)
            if len(tokens) > self.info.context_length:
                raise ContextLengthExceeded(len(tokens), self.info.context_length, param="input")
            total += len(tokens)
            vectors.append(vector(self.engine.vocabulary.decode(tokens)))
        return EmbeddingResult(tuple(vectors), total)

    async def count_tokens(self, prompt: Prompt) -> int:
        self._require_alive()
        return len(self._encode(prompt))

    async def tokenize(self, text: str, *, add_special: bool = False) -> list[int]:
        self._require_alive()
        return self.engine.vocabulary.encode(text)

    async def detokenize(self, tokens: Sequence[int]) -> str:
        self._require_alive()
        return self.engine.vocabulary.decode(tokens)

    async def stats(self) -> InstanceStats:
        self._require_alive()
        return InstanceStats(
            running=self._running,
            waiting=self._waiting,
            kv_used_tokens=len(self._cached),
            kv_total_tokens=self.info.context_length * self.info.parallel,
            prompt_tokens_total=self._totals["prompt"],
            cached_tokens_total=self._totals["cached"],
            completion_tokens_total=self._totals["completion"],
        )

    async def ping(self) -> None:
        self._require_alive()

    async def unload(self) -> None:
        if not self.exited.done():
            self.exited.set_result(Exit(expected=True, exit_code=0, cause="The model was unloaded."))
