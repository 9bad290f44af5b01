"""One model in one llama-server child: generation, counting, embeddings, and what its death means for each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import psutil

from localllm.core.errors import (
    BadGrammar,
    BadRequest,
    BadTemplate,
    Cancelled,
    ContextLengthExceeded,
    EngineCrashed,
    EngineError,
    EngineStalled,
    GenerationFailed,
    Unsupported,
)
from localllm.core.generation import (
    ChatPrompt,
    Event,
    GenerationRequest,
    Prompt,
    TextPrompt,
    TokenPrompt,
)
from localllm.core.launch import LaunchPlan
from localllm.engines.base import (
    Capability,
    EmbeddingResult,
    Exit,
    Instance,
    InstanceInfo,
    InstanceStats,
)
from localllm.engines.llama_server.answer import Answer
from localllm.engines.llama_server.connection import Connection
from localllm.engines.llama_server.server_plan import batch_of
from localllm.engines.llama_server.translate import CHAT_PATH, Call, chat_body, has_images, translate
from localllm.engines.llama_server.wire import (
    Content,
    EmbeddingBody,
    InputTokens,
    PromptText,
    Props,
    Tokens,
    decode_chat_chunk,
    decode_text_chunk,
)
from localllm.engines.model_file import FileIdentity
from localllm.engines.process import Child
from localllm.engines.slots import Slots

_PING_S = 5.0
_DEATH_WAIT_S = 2.0
_SLOWEST_PREFILL = 4.0  # tokens a second, below which a machine counts as stuck
_UNLOAD_GRACE_S = 3.0


class LlamaServerInstance(Instance):
    def __init__(
        self,
        *,
        child: Child,
        connection: Connection,
        info: InstanceInfo,
        plan: LaunchPlan,
        props: Props,
        model: FileIdentity,
        token_timeout_s: float,
    ) -> None:
        super().__init__()
        self.info = info
        self.exited = child.exited
        self._child = child
        self._connection = connection
        self._plan = plan
        self._abilities = props.chat_template_caps
        self._model = model
        self._token_timeout_s = token_timeout_s
        self._slots = Slots(info.parallel)
        self._answers: set[Answer] = set()
        self._totals = [0, 0, 0]
        self.exited.add_done_callback(self._fail_waiters)

    # ------------------------------------------------------------ generation

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        self._require_alive()
        self._model.require_unchanged()
        self._require_supported(request)
        stops = (*request.stop, *self._plan.stop)
        call = translate(request, self._abilities, count_each=bool(stops))
        answer = Answer(
            context_length=self.info.context_length,
            choices=request.n,
            alternatives=request.logprobs,
            stops=stops,
            tool_names=call.tool_names,
        )
        asked_at = time.perf_counter()
        async with self._slots.take(min(request.n, self.info.parallel)):
            queue_ms = (time.perf_counter() - asked_at) * 1000
            self._answers.add(answer)
            try:
                for first in range(0, request.n, self.info.parallel):
                    count = min(self.info.parallel, request.n - first)
                    async with aclosing(self._round(request, call, answer, first, count)) as events:
                        async for event in events:
                            yield event
            finally:
                self._answers.discard(answer)
            if not answer.complete:
                raise GenerationFailed("llama-server ended the stream before the answer was complete.")
            usage = answer.usage(queue_ms, request.tier)
            self._count(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)
            yield usage

    async def _round(
        self, request: GenerationRequest, call: Call, answer: Answer, first: int, count: int
    ) -> AsyncGenerator[Event, None]:
        """As many choices as the server has slots for, in one HTTP request."""
        body = call.body | ({"n": count} if count > 1 else {})
        events: Callable[[bytes], list[Event]]
        if call.path == CHAT_PATH:
            events = lambda data: answer.chat(decode_chat_chunk(data), first)  # noqa: E731
        else:
            events = lambda data: answer.text(decode_text_chunk(data), first)  # noqa: E731
        try:
            async with self._sent(call.path, body, answer) as stream:
                async for data in stream:
                    for event in events(data):
                        yield event
                    if answer.over(first, count):
                        return
        except BadRequest as error:
            raise await self._explained(error, request) from error

    @asynccontextmanager
    async def _sent(
        self, path: str, body: dict[str, object], answer: Answer
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """The request's stream, watched: silence beyond patience ends the child, its death names the cause."""
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._patience_s(answer)):
                    stream = await stack.enter_async_context(self._connection.stream(path, body))
            except TimeoutError as error:
                raise self._stalled() from error
            except OSError as error:
                raise await self._broken() from error
            yield self._watched(stream, answer)

    async def _watched(self, stream: AsyncIterator[bytes], answer: Answer) -> AsyncIterator[bytes]:
        while True:
            try:
                async with asyncio.timeout(self._patience_s(answer)):
                    data = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError as error:
                raise self._stalled() from error
            except OSError as error:
                raise await self._broken() from error
            yield data

    def _patience_s(self, answer: Answer) -> float:
        """How long silence is fine: a batch of prompt tokens, ours or another stream's, may be computed meanwhile."""
        batch, _ = batch_of(self._plan)
        prefill_s = batch / _SLOWEST_PREFILL
        if answer.generated and self._slots.running == 1:
            prefill_s = 0.0
        return self._token_timeout_s + prefill_s

    def _stalled(self) -> EngineStalled:
        cause = f"It sent no token for {self._token_timeout_s:.0f} s and was ended."
        self._child.kill(cause)
        return EngineStalled(f"The engine stalled. {cause}", hint="The next request starts it again.")

    async def _broken(self) -> EngineError:
        """The connection broke: the process is dying, and its end says why."""
        await asyncio.wait({self.exited}, timeout=_DEATH_WAIT_S)
        if not self.exited.done():
            return GenerationFailed("The connection to llama-server broke.")
        return self._end(self.exited.result())

    async def _explained(self, error: BadRequest, request: GenerationRequest) -> EngineError:
        """llama-server says "invalid request" to many things; find out which part it means."""
        if isinstance(error, Unsupported):
            return error
        if isinstance(request.prompt, ChatPrompt):
            try:
                await self._connection.post(
                    "/apply-template", chat_body(request.prompt, self._abilities), PromptText
                )
            except EngineError as template_error:
                return BadTemplate(
                    f"The model's chat template refused the messages: {template_error.message}",
                    param="messages",
                )
        if request.constraint is not None:
            return BadGrammar(f"The engine refused the constraint: {error.message}", param="response_format")
        return error

    # ------------------------------------------------------------ what can be asked

    def _require_alive(self) -> None:
        if self.exited.done():
            raise self._end(self.exited.result())

    @staticmethod
    def _end(end: Exit) -> EngineError:
        if end.expected:
            return Cancelled("The model was unloaded.")
        details: dict[str, object] = {
            "cause": end.cause,
            "exit_code": end.exit_code,
            "stderr_tail": end.stderr_tail,
        }
        return EngineCrashed(f"The engine's process ended. {end.cause}", details=details)

    def _fail_waiters(self, exited: asyncio.Future[Exit]) -> None:
        if not exited.cancelled():
            self._slots.fail(self._end(exited.result()))

    def _require_supported(self, request: GenerationRequest) -> None:
        if Capability.CHAT not in self.info.capabilities:
            raise Unsupported("This model was loaded for embeddings; it does not answer.", param="model")
        if has_images(request.prompt) and Capability.VISION not in self.info.capabilities:
            raise Unsupported(
                "This model cannot see images.",
                hint="Load a vision model together with its projector (mmproj).",
                param="messages",
            )

    # ------------------------------------------------------------ tokens and embeddings

    @asynccontextmanager
    async def _asking(self) -> AsyncIterator[Connection]:
        self._require_alive()
        try:
            yield self._connection
        except OSError as error:
            raise await self._broken() from error

    async def count_tokens(self, prompt: Prompt) -> int:
        if isinstance(prompt, TokenPrompt):
            return len(prompt.tokens)
        if isinstance(prompt, TextPrompt):
            return len(await self.tokenize(prompt.text, add_special=True))
        async with self._asking() as connection:
            counted = await connection.post(
                "/v1/chat/completions/input_tokens", chat_body(prompt, self._abilities), InputTokens
            )
        return counted.input_tokens

    async def tokenize(self, text: str, *, add_special: bool = False) -> list[int]:
        body = {"content": text, "add_special": add_special, "parse_special": True}
        async with self._asking() as connection:
            return (await connection.post("/tokenize", body, Tokens)).tokens

    async def detokenize(self, tokens: Sequence[int]) -> str:
        async with self._asking() as connection:
            return (await connection.post("/detokenize", {"tokens": list(tokens)}, Content)).content

    async def embed(self, inputs: Sequence[str | Sequence[int]]) -> EmbeddingResult:
        """An embedding is computed in one piece, so its input may be as long as one micro-batch (see ``server_plan``)."""
        if Capability.EMBEDDING not in self.info.capabilities:
            raise Unsupported("This model was loaded to answer, not for embeddings.", param="model")
        _, limit = batch_of(self._plan)
        tokens = [
            await self.tokenize(text, add_special=True) if isinstance(text, str) else list(text)
            for text in inputs
        ]
        longest = max((len(one) for one in tokens), default=0)
        if longest > min(limit, self.info.context_length):
            raise ContextLengthExceeded(longest, min(limit, self.info.context_length), param="input")
        async with self._asking() as connection:
            body = await connection.post("/v1/embeddings", {"input": tokens}, EmbeddingBody)
        ordered = sorted(body.data, key=lambda data: data.index)
        return EmbeddingResult(
            tuple(tuple(data.embedding) for data in ordered), sum(len(one) for one in tokens)
        )

    # ------------------------------------------------------------ health

    async def stats(self) -> InstanceStats:
        """Counted here: asking the server would wait for the batch that it is computing."""
        self._require_alive()
        prompt, cached, completion = self._totals
        return InstanceStats(
            running=self._slots.running,
            waiting=self._slots.waiting,
            kv_used_tokens=sum(answer.prompt_tokens + answer.generated for answer in self._answers),
            kv_total_tokens=self.info.context_length * self.info.parallel,
            prompt_tokens_total=prompt,
            cached_tokens_total=cached,
            completion_tokens_total=completion,
            resident_bytes=_resident_bytes(self._child.pid),
        )

    def _count(self, *tokens: int) -> None:
        self._totals = [total + new for total, new in zip(self._totals, tokens, strict=True)]

    async def ping(self) -> None:
        """Busy, its web server must answer (the token watchdog sees to the rest); idle, its main loop must."""
        self._require_alive()
        path = "/health" if self._slots.running else "/slots"
        try:
            async with asyncio.timeout(_PING_S):
                await self._connection.get(path, object)
        except TimeoutError as error:
            raise EngineStalled(f"The engine did not answer for {_PING_S:.0f} s.") from error
        except OSError as error:
            raise await self._broken() from error

    async def unload(self) -> None:
        await self._child.stop(_UNLOAD_GRACE_S)


def _resident_bytes(pid: int) -> int | None:
    try:
        return psutil.Process(pid).memory_info().rss
    except psutil.Error:
        return None
