"""One model that Ollama has loaded for us."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import httpx
import msgspec

from localllm.core.errors import (
    BadRequest,
    Cancelled,
    ContextLengthExceeded,
    EngineCrashed,
    EngineStalled,
    GenerationFailed,
    LocalLLMError,
    Unsupported,
)
from localllm.core.generation import Event, GenerationRequest, Prompt
from localllm.core.launch import LaunchPlan
from localllm.engines.base import Capability, EmbeddingResult, Exit, Instance, InstanceInfo, InstanceStats
from localllm.engines.model_file import FileIdentity
from localllm.engines.ollama.daemon import Daemon
from localllm.engines.ollama.translate import Reader, has_images, translate
from localllm.engines.ollama.wire import Embedded, Line, Residents, error_decoder, line_decoder
from localllm.engines.slots import Slots

PING_SECONDS = 5.0
_JSON = {"Content-Type": "application/json"}
CONTEXT_TEXTS = ("exceeds the context length", "exceeds maximum context length", "exceed_context_size")
"""Ollama has no code for a prompt that is too long; this one edge knows its words, version by version."""


_SLOWEST_PREFILL_BYTES_PER_SECOND = 16.0  # four tokens a second, below which a machine counts as stuck


class OllamaInstance(Instance):
    """``name`` is Ollama's own; ``options`` are what it was loaded with and are repeated with every request.

    ``features`` are what Ollama says of the model; ``file`` is the GGUF it was made from, when that was ours.
    """

    def __init__(
        self,
        daemon: Daemon,
        name: str,
        plan: LaunchPlan,
        info: InstanceInfo,
        *,
        options: dict[str, object],
        features: frozenset[str],
        file: FileIdentity | None,
        token_timeout_s: float,
    ) -> None:
        super().__init__()
        self.info = info
        self._daemon = daemon
        self._name = name
        self._plan = plan
        self._options = options
        self._features = features
        self._file = file
        self._token_timeout_s = token_timeout_s
        self._slots = Slots(info.parallel)
        self._reads: set[asyncio.Timeout] = set()
        self._completed = 0

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self._require_alive()
        self._require_supported(request)
        if self._file is not None:
            self._file.require_unchanged()
        call = translate(
            request, model=self._name, options=self._options, stop=self._plan.stop, features=self._features
        )
        content = msgspec.json.encode(call.body)
        patience_s = self._token_timeout_s + len(content) / _SLOWEST_PREFILL_BYTES_PER_SECOND
        reader = Reader(
            call, context_length=self.info.context_length, wants_logprobs=request.logprobs is not None
        )
        asked_at = time.perf_counter()
        async with self._slots.take(1), self._answer(call.path, content, patience_s) as lines:
            reader.queue_ms = (time.perf_counter() - asked_at) * 1000
            while not reader.ended:
                line = await self._line(lines, patience_s)
                patience_s = self._token_timeout_s
                for event in reader.read(line):
                    yield event
            self._completed += reader.completion_tokens

    @asynccontextmanager
    async def _answer(self, path: str, content: bytes, within_s: float) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of one answer. Leaving early closes its connection, which is how Ollama learns of it."""
        async with AsyncExitStack() as stack:
            async with self._watched(within_s):
                answer = await stack.enter_async_context(
                    self._daemon.client.stream(
                        "POST", path, content=content, headers=_JSON, timeout=httpx.Timeout(None, connect=5.0)
                    )
                )
                if answer.status_code != 200:
                    raise self._refusal(answer.status_code, await answer.aread())
            yield answer.aiter_lines()

    async def _line(self, lines: AsyncIterator[str], within_s: float) -> Line:
        try:
            async with self._watched(within_s):
                raw = await anext(lines)
                while not raw:
                    raw = await anext(lines)
        except StopAsyncIteration:
            raise GenerationFailed("Ollama ended the answer without saying that it was done.") from None
        try:
            line = line_decoder.decode(raw)
        except msgspec.DecodeError as error:
            raise GenerationFailed(f"Ollama sent a line that is not its API's: {error}.") from error
        if line.error is not None:
            raise self._refusal(500, raw.encode())
        return line

    @asynccontextmanager
    async def _watched(self, within_s: float) -> AsyncIterator[None]:
        """Waiting for Ollama: silence for too long is a stall, a broken line is looked into, an unload ends it."""
        scope = asyncio.timeout(within_s)
        try:
            async with scope:
                self._reads.add(scope)
                try:
                    yield
                finally:
                    self._reads.discard(scope)
        except TimeoutError as error:
            self._require_alive()
            await self._daemon.end_if_stuck()
            raise EngineStalled(
                f"Ollama sent nothing for {within_s:.0f} s.", hint="See Ollama's log."
            ) from error
        except httpx.HTTPError as error:
            raise await self._lost(error) from error

    def _require_alive(self) -> None:
        if not self.exited.done():
            return
        end = self.exited.result()
        if end.expected:
            raise Cancelled("The model was unloaded.")
        raise _crash(end)

    def _require_supported(self, request: GenerationRequest) -> None:
        if Capability.CHAT not in self.info.capabilities:
            raise Unsupported("This model only gives embeddings in Ollama.", param="model")
        if has_images(request.prompt) and Capability.VISION not in self.info.capabilities:
            raise Unsupported("This model cannot see images in Ollama.", param="messages")

    async def embed(self, inputs: Sequence[str | Sequence[int]]) -> EmbeddingResult:
        if Capability.EMBEDDING not in self.info.capabilities:
            raise Unsupported("This model gives no embeddings in Ollama.", param="model")
        texts = [i for i in inputs if isinstance(i, str)]
        if len(texts) != len(inputs):
            raise Unsupported("Ollama embeds text, not token ids.", param="input")
        self._require_alive()
        async with self._watched(self._token_timeout_s + sum(map(len, texts))):
            answer = await self._daemon.client.post(
                "/api/embed",
                json={
                    "model": self._name,
                    "input": texts,
                    "truncate": False,
                    "keep_alive": -1,
                    "options": self._options,
                },
                timeout=None,
            )
        if answer.status_code != 200:
            raise self._refusal(answer.status_code, answer.content, param="input")
        found = msgspec.json.decode(answer.content, type=Embedded)
        return EmbeddingResult(
            tuple(_unit(v) for v in found.embeddings), max(found.prompt_eval_count or 0, 0)
        )

    async def count_tokens(self, prompt: Prompt) -> int:
        raise Unsupported("Ollama does not count tokens without generating.", param="model")

    async def tokenize(self, text: str, *, add_special: bool = False) -> list[int]:
        raise Unsupported("Ollama has no tokenizer in its API.", param="model")

    async def detokenize(self, tokens: Sequence[int]) -> str:
        raise Unsupported("Ollama has no tokenizer in its API.", param="model")

    async def stats(self) -> InstanceStats:
        resident = None
        try:
            answer = await self._daemon.client.get("/api/ps", timeout=PING_SECONDS)
            models = msgspec.json.decode(answer.content, type=Residents).models
            resident = next((m.size for m in models if m.name == self._name), None)
        except (httpx.HTTPError, msgspec.DecodeError):
            pass
        return InstanceStats(
            running=self._slots.running,
            waiting=self._slots.waiting,
            completion_tokens_total=self._completed,
            resident_bytes=resident,
        )

    async def ping(self) -> None:
        self._require_alive()
        if await self._daemon.version() is None:
            raise await self._gone()

    async def unload(self) -> None:
        if self.exited.done():
            return
        self._end(Exit(expected=True, exit_code=None, cause="It was unloaded."))
        await let_go(self._daemon, self._name)

    def _end(self, end: Exit) -> None:
        """Nothing more comes from here: end what is open or waits with the reason."""
        self.exited.set_result(end)
        self._slots.fail(Cancelled("The model was unloaded.") if end.expected else _crash(end))
        now = asyncio.get_running_loop().time()
        for scope in self._reads:
            scope.reschedule(now)

    def _refusal(self, status: int, content: bytes, param: str = "messages") -> LocalLLMError:
        """Ollama's error answer as ours."""
        try:
            text = error_decoder.decode(content).error or f"status {status}"
        except msgspec.DecodeError:
            text = f"status {status}"
        if any(words in text for words in CONTEXT_TEXTS):
            return ContextLengthExceeded(None, self.info.context_length, param=param)
        if status in (400, 404, 422):
            return BadRequest(f"Ollama refused the request: {text}", param=param)
        return GenerationFailed(f"Ollama failed: {text}")

    async def _lost(self, error: httpx.HTTPError) -> LocalLLMError:
        """The line to the daemon broke: it died, or only this answer did."""
        self._require_alive()
        if await self._daemon.version() is not None:
            return GenerationFailed(f"Ollama broke off the answer: {str(error) or type(error).__name__}.")
        return await self._gone()

    async def _gone(self) -> EngineCrashed:
        end = await self._daemon.end()
        if not self.exited.done():
            self._end(msgspec.structs.replace(end, expected=False))
        return _crash(end)


async def let_go(daemon: Daemon, name: str) -> None:
    """Unload a model; a daemon that does not answer holds nothing that we could free."""
    with contextlib.suppress(httpx.HTTPError):
        await daemon.client.post(
            "/api/generate", json={"model": name, "keep_alive": 0, "stream": False}, timeout=PING_SECONDS
        )


def _crash(end: Exit) -> EngineCrashed:
    details: dict[str, object] = {
        "cause": end.cause,
        "exit_code": end.exit_code,
        "stderr_tail": end.stderr_tail,
    }
    return EngineCrashed(
        f"Ollama ended. {end.cause}", hint="The next request looks for it again.", details=details
    )


def _unit(vector: Sequence[float]) -> tuple[float, ...]:
    length = math.sqrt(math.fsum(v * v for v in vector))
    return tuple(v / length for v in vector) if length else tuple(vector)
