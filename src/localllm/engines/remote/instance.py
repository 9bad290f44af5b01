"""One model of a remote. Nothing is loaded here; it is asked, and what it holds is its own affair."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence

import msgspec
from msgspec.structs import replace

from localllm.core.errors import (
    Cancelled,
    ContextLengthExceeded,
    EngineCrashed,
    GenerationFailed,
    LocalLLMError,
    Unsupported,
)
from localllm.core.generation import Event, GenerationRequest, Prompt, TokenPrompt
from localllm.engines.base import Capability, EmbeddingResult, Exit, Instance, InstanceInfo, InstanceStats
from localllm.engines.llama_server.translate import has_images
from localllm.engines.remote.answer import Answer
from localllm.engines.remote.connection import Connection
from localllm.engines.remote.probe import Abilities
from localllm.engines.remote.translate import translate
from localllm.engines.remote.wire import Chunk, Embeddings, ModelList, chunk_decoder
from localllm.engines.slots import Slots


class RemoteInstance(Instance):
    """``model`` is the remote's name of it; ``stop`` always ends its answers."""

    def __init__(
        self,
        connection: Connection,
        info: InstanceInfo,
        abilities: Abilities,
        *,
        model: str,
        stop: Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.info = info
        self._connection = connection
        self._abilities = abilities
        self._model = model
        self._stop = tuple(stop)
        self._slots = Slots(info.parallel)
        self._reads: set[asyncio.Timeout] = set()
        self._prompt_tokens = 0
        self._completion_tokens = 0

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self._require_open()
        self._require_supported(request)
        if self._stop:
            request = replace(request, stop=(*self._stop, *request.stop))
        target = self._connection.target
        call = translate(
            request, self._abilities, model=self._model, max_tokens_field=target.max_tokens_field
        )
        answer = Answer(
            context_length=self.info.context_length,
            choices=request.n,
            alternatives=request.logprobs,
            tool_names=call.tool_names,
        )
        asked_at = time.perf_counter()
        async with self._slots.take(1):
            queue_ms = (time.perf_counter() - asked_at) * 1000
            patience_s = target.first_token_timeout_s
            try:
                async with self._connection.stream(call.path, call.body) as events:
                    while (chunk := await self._chunk(events, patience_s)) is not None:
                        patience_s = target.token_timeout_s
                        for event in answer.read(chunk):
                            yield event
            except ContextLengthExceeded as error:
                if error.context_length:
                    raise
                raise ContextLengthExceeded(error.prompt_tokens, self.info.context_length) from error
            if not answer.complete:
                raise GenerationFailed(
                    f"The remote {target.name!r} ended the stream before the answer was complete."
                )
            usage = answer.usage(queue_ms, request.tier)
            self._prompt_tokens += usage.prompt_tokens
            self._completion_tokens += usage.completion_tokens
            yield usage

    async def _chunk(self, events: AsyncIterator[bytes], within_s: float) -> Chunk | None:
        scope = asyncio.timeout(None)
        try:
            async with scope, self._connection.within(within_s):
                self._reads.add(scope)
                try:
                    data = await anext(events, None)
                finally:
                    self._reads.discard(scope)
        except TimeoutError:
            raise Cancelled("The model was unloaded.") from None
        if data is None:
            return None
        try:
            chunk = chunk_decoder.decode(data)
        except msgspec.DecodeError as error:
            raise GenerationFailed(
                f"The remote {self._connection.target.name!r} sent an event that is not its API's: {error}."
            ) from error
        if chunk.error is not None:
            raise self._connection.failure(chunk.error)
        return chunk

    async def embed(self, inputs: Sequence[str | Sequence[int]]) -> EmbeddingResult:
        self._require_open()
        if Capability.EMBEDDING not in self.info.capabilities:
            raise Unsupported("This remote model is not known to give embeddings.", param="model")
        body: dict[str, object] = {
            "model": self._model,
            "input": [i if isinstance(i, str) else list(i) for i in inputs],
        }
        found = await self._connection.post(
            "/embeddings", body, Embeddings, within_s=self._connection.target.first_token_timeout_s
        )
        ordered = sorted(found.data, key=lambda one: one.index)
        if len(ordered) != len(inputs):
            raise GenerationFailed("The remote sent another number of embeddings than it was asked for.")
        return EmbeddingResult(tuple(tuple(one.embedding) for one in ordered), found.usage.prompt_tokens)

    async def count_tokens(self, prompt: Prompt) -> int:
        if isinstance(prompt, TokenPrompt):
            return len(prompt.tokens)
        raise Unsupported("OpenAI's API does not count tokens without generating.", param="model")

    async def tokenize(self, text: str, *, add_special: bool = False) -> list[int]:
        raise Unsupported("OpenAI's API has no tokenizer.", param="model")

    async def detokenize(self, tokens: Sequence[int]) -> str:
        raise Unsupported("OpenAI's API has no tokenizer.", param="model")

    async def stats(self) -> InstanceStats:
        return InstanceStats(
            running=self._slots.running,
            waiting=self._slots.waiting,
            prompt_tokens_total=self._prompt_tokens,
            completion_tokens_total=self._completion_tokens,
        )

    async def ping(self) -> None:
        self._require_open()
        try:
            await self._connection.get("/models", ModelList)
        except LocalLLMError as error:
            raise EngineCrashed(error.message, hint=error.hint) from error

    async def unload(self) -> None:
        if self.exited.done():
            return
        self.exited.set_result(Exit(expected=True, exit_code=None, cause="It was unloaded."))
        self._slots.fail(Cancelled("The model was unloaded."))
        now = asyncio.get_running_loop().time()
        for scope in self._reads:
            scope.reschedule(now)

    def _require_open(self) -> None:
        if self.exited.done():
            raise Cancelled("The model was unloaded.")

    def _require_supported(self, request: GenerationRequest) -> None:
        capabilities = self.info.capabilities
        if has_images(request.prompt) and Capability.VISION not in capabilities:
            raise Unsupported("This remote model is not known to see images.", param="messages")
        if request.prediction is not None and Capability.PREDICTION not in capabilities:
            raise Unsupported("This remote is not known to use a prediction.", param="prediction")
