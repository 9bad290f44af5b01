"""One model that Ollama has loaded for us."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Sequence

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
from localllm.engines.ollama.daemon import Daemon
from localllm.engines.ollama.translate import Reader, body, endpoint, forces_call
from localllm.engines.ollama.wire import Embedded, Residents, error_decoder, line_decoder

PING_SECONDS = 5.0
CONTEXT_TEXTS = ("exceeds the context length", "exceeds maximum context length", "exceed_context_size")
"""Ollama has no code for a prompt that is too long; this one edge knows its words, version by version."""


class OllamaInstance(Instance):
    """``name`` is Ollama's own; ``options`` are what it was loaded with and are repeated with every request."""

    def __init__(
        self,
        daemon: Daemon,
        name: str,
        plan: LaunchPlan,
        info: InstanceInfo,
        *,
        options: dict[str, object],
        thinks: bool,
        token_timeout_s: float,
    ) -> None:
        super().__init__()
        self.info = info
        self._daemon = daemon
        self._name = name
        self._plan = plan
        self._options = options
        self._thinks = thinks
        self._timeout = httpx.Timeout(token_timeout_s, connect=PING_SECONDS)
        self._open: set[asyncio.Task[object]] = set()
        self._unloaded = False
        self._running = 0
        self._completed = 0

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        if self._unloaded:
            raise Cancelled("The model was unloaded.")
        fields = body(
            request, model=self._name, options=self._options, stop=self._plan.stop, thinks=self._thinks
        )
        reader = Reader(
            context_length=self.info.context_length,
            wants_call=forces_call(request),
            wants_logprobs=request.logprobs is not None,
        )
        self._running += 1
        try:
            async with self._daemon.client.stream(
                "POST", endpoint(request), json=fields, timeout=self._timeout
            ) as answer:
                if answer.status_code != 200:
                    raise self._refusal(answer.status_code, await answer.aread())
                async for raw in answer.aiter_lines():
                    if not raw:
                        continue
                    line = line_decoder.decode(raw)
                    if line.error is not None:
                        raise self._refusal(500, raw.encode())
                    for event in reader.read(line):
                        yield event
                    if reader.ended:
                        self._completed += line.eval_count or 0
                        return
            raise GenerationFailed("Ollama ended the answer without saying that it was done.")
        except httpx.TimeoutException as error:
            raise EngineStalled("Ollama sent nothing for too long.", hint="See Ollama's log.") from error
        except httpx.HTTPError as error:
            raise await self._lost(error) from error
        except msgspec.DecodeError as error:
            raise GenerationFailed(f"Ollama sent a line that is not its API's: {error}") from error
        finally:
            self._running -= 1

    async def embed(self, inputs: Sequence[str | Sequence[int]]) -> EmbeddingResult:
        if Capability.EMBEDDING not in self.info.capabilities:
            raise Unsupported("This model gives no embeddings in Ollama.", param="model")
        texts = [i for i in inputs if isinstance(i, str)]
        if len(texts) != len(inputs):
            raise Unsupported("Ollama embeds text, not token ids.", param="input")
        try:
            answer = await self._daemon.client.post(
                "/api/embed",
                json={
                    "model": self._name,
                    "input": texts,
                    "truncate": False,
                    "keep_alive": -1,
                    "options": self._options,
                },
                timeout=self._timeout,
            )
        except httpx.TimeoutException as error:
            raise EngineStalled("Ollama did not embed in time.") from error
        except httpx.HTTPError as error:
            raise await self._lost(error) from error
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
            running=self._running, completion_tokens_total=self._completed, resident_bytes=resident
        )

    async def ping(self) -> None:
        if await self._daemon.version() is None:
            raise EngineCrashed("Ollama does not answer.", hint="Start it again: ollama serve")

    async def unload(self) -> None:
        if self._unloaded:
            return
        self._unloaded = True
        try:
            await self._daemon.client.post(
                "/api/generate", json={"model": self._name, "keep_alive": 0}, timeout=PING_SECONDS
            )
        except httpx.HTTPError:
            pass  # a daemon that is gone holds nothing
        if not self.exited.done():
            self.exited.set_result(Exit(expected=True, exit_code=None, cause="It was unloaded."))

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
        if self._unloaded:
            return Cancelled("The model was unloaded.")
        if await self._daemon.version() is not None:
            return GenerationFailed(f"Ollama broke off the answer: {str(error) or type(error).__name__}.")
        cause = "Ollama does not answer any more."
        if not self.exited.done():
            self.exited.set_result(Exit(expected=False, exit_code=None, cause=cause))
        return EngineCrashed(cause, hint="Start it again: ollama serve")


def _unit(vector: Sequence[float]) -> tuple[float, ...]:
    length = math.sqrt(math.fsum(v * v for v in vector))
    return tuple(v / length for v in vector) if length else tuple(vector)
