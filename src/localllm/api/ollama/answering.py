"""``POST /api/chat``, ``/api/generate`` and ``/api/embed``."""

from __future__ import annotations

import time

from msgspec import Struct, structs
from starlette.requests import Request

from localllm.api.ollama.models import known_name
from localllm.api.ollama.reply import OllamaChunks, OllamaCollector, OllamaPieces
from localllm.api.ollama.translate import chat_of, generation_of
from localllm.api.v1.chat import chat_generation
from localllm.api.v1.completions import completion_generations
from localllm.api.v1.embeddings import shortened
from localllm.api.v1.inputs import separate
from localllm.api.v1.parameters import keep_alive_seconds
from localllm.api.v1.port import Asked, Port
from localllm.api.v1.respond import Generation, StreamedAnswer, WholeAnswer
from localllm.api.v1.tokens import Counted
from localllm.core.control import LoadRequest
from localllm.core.ollama_api import (
    OllamaChatRequest,
    OllamaEmbedReply,
    OllamaEmbedRequest,
    OllamaFields,
    OllamaGenerateRequest,
)
from localllm.core.openai import ChatRequest, CompletionRequest
from localllm.service.pipeline import Call, EmbedCall

_MAX_INPUTS = 2048


class Answering:
    def __init__(self, port: Port) -> None:
        self._port = port

    async def chat(self, request: Request) -> StreamedAnswer | WholeAnswer | Counted:
        with self._port.noting_refusals(request, "api.chat"):
            fields, headers = await self._port.read(request, OllamaChatRequest)
            asked = self._asked(request, fields.model)
            if not fields.messages:
                return Counted(self._load(fields, asked, chat=True), headers)
            return self._answer(fields, chat_of(fields), asked, headers, "api.chat")

    async def generate(self, request: Request) -> StreamedAnswer | WholeAnswer | Counted:
        with self._port.noting_refusals(request, "api.generate"):
            fields, headers = await self._port.read(request, OllamaGenerateRequest)
            asked = self._asked(request, fields.model)
            if not fields.prompt and not fields.images:
                return Counted(self._load(fields, asked, chat=False), headers)
            return self._answer(fields, generation_of(fields), asked, headers, "api.generate")

    async def embed(self, request: Request) -> Counted:
        with self._port.noting_refusals(request, "api.embed"):
            fields, headers = await self._port.read(request, OllamaEmbedRequest)
            asked = self._asked(request, fields.model)
            inputs = separate(fields.input, "input", most=_MAX_INPUTS)
        call = EmbedCall(
            id=asked.id,
            endpoint="api.embed",
            model=asked.model,
            inputs=inputs,
            client=asked.client,
            received=asked.received,
        )
        return Counted(self._embedded(call, asked, fields.dimensions), headers)

    def _asked(self, request: Request, model: str) -> Asked:
        return self._port.asked(request, known_name(self._port, model), "api-")

    def _answer(
        self,
        fields: OllamaFields,
        translated: ChatRequest | CompletionRequest,
        asked: Asked,
        headers: dict[str, str],
        endpoint: str,
    ) -> StreamedAnswer | WholeAnswer:
        if isinstance(translated, ChatRequest):
            request, guard = chat_generation(translated, asked.id)
        else:
            (request,), guard = completion_generations(translated, asked.id), None
        stream = fields.stream is not False
        call = Call(
            id=asked.id,
            endpoint=endpoint,
            model=asked.model,
            request=request,
            client=asked.client,
            stream=stream,
            received=asked.received,
        )
        generation = Generation(
            events=self._port.generate(asked, call),
            headers=headers,
            prepare=self._port.preparation(translated, asked),
            guard=guard,
        )
        pieces = OllamaPieces(fields.model, chat=endpoint == "api.chat", received=asked.received)
        if stream:
            return StreamedAnswer(generation, OllamaChunks(pieces), self._port.server, lines=True)
        return WholeAnswer(generation, OllamaCollector(pieces))

    async def _load(self, fields: OllamaFields, asked: Asked, *, chat: bool) -> Struct:
        """Nothing was asked: the model is only made ready."""
        self._port.require_access(asked)
        wish = LoadRequest(model=asked.model, keep_alive_seconds=keep_alive_seconds(fields.keep_alive))
        await self._port.runtime.manager.load(wish)
        pieces = OllamaPieces(fields.model, chat=chat, received=asked.received)
        return structs.replace(pieces.piece(), done=True, done_reason="load")

    async def _embedded(self, call: EmbedCall, asked: Asked, dimensions: int | None) -> Struct:
        result = await self._port.embed(asked, call)
        return OllamaEmbedReply(
            model=call.model,
            embeddings=[shortened(vector, dimensions) for vector in result.vectors],
            total_duration=int((time.monotonic() - asked.received) * 1e9),
            prompt_eval_count=result.prompt_tokens,
        )
