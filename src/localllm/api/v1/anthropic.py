"""``POST /v1/messages`` and ``/v1/messages/count_tokens``: Anthropic's API, for clients that speak only that."""

from __future__ import annotations

import msgspec
from starlette.requests import Request

from localllm.api.v1.anthropic_input import as_chat
from localllm.api.v1.anthropic_reply import MessageBuilder, MessageChunks, MessageCollector
from localllm.api.v1.chat import chat_generation
from localllm.api.v1.port import Asked, Port, with_skipped
from localllm.api.v1.respond import Generation, StreamedAnswer, WholeAnswer
from localllm.api.v1.tokens import Counted
from localllm.core.anthropic import CountTokensRequest, MessagesRequest, TokenCount
from localllm.core.openai import ChatRequest
from localllm.service.pipeline import Call


class Messages:
    def __init__(self, port: Port) -> None:
        self._port = port

    async def create(self, request: Request) -> StreamedAnswer | WholeAnswer:
        with self._port.noting_refusals(request, "messages"):
            return await self._answer(request)

    async def count_tokens(self, request: Request) -> Counted:
        with self._port.noting_refusals(request, "messages.count_tokens"):
            fields, headers = await self._port.read(request, CountTokensRequest)
            asked = self._port.asked(request, fields.model, "msg_")
            chat, skipped = as_chat(fields)
        return Counted(self._count(chat, asked), with_skipped(headers, skipped))

    async def _answer(self, request: Request) -> StreamedAnswer | WholeAnswer:
        fields, headers = await self._port.read(request, MessagesRequest)
        asked = self._port.asked(request, fields.model, "msg_")
        chat, skipped = as_chat(fields)
        generation_request, guard = chat_generation(chat, asked.id)
        call = Call(
            id=asked.id,
            endpoint="messages",
            model=asked.model,
            request=generation_request,
            client=asked.client,
            stream=bool(fields.stream),
            received=asked.received,
        )
        generation = Generation(
            events=self._port.generate(asked, call), headers=with_skipped(headers, skipped), guard=guard
        )
        builder = MessageBuilder(asked.id, asked.model)
        if fields.stream:
            return StreamedAnswer(generation, MessageChunks(builder), self._port.server)
        return WholeAnswer(generation, MessageCollector(builder))

    async def _count(self, chat: ChatRequest, asked: Asked) -> msgspec.Struct:
        self._port.require_access(asked)
        prompt = chat_generation(chat, asked.id)[0].prompt
        return TokenCount(await self._port.pipeline.count_tokens(asked.model, prompt))
