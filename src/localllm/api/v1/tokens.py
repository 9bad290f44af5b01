"""``POST /v1/tokenize`` and ``/v1/detokenize``: text to a model's tokens and back, and how many a conversation takes."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import msgspec
from msgspec import Struct
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from localllm.api.connection import ClientLeft, while_connected
from localllm.api.v1.messages import normalise_messages
from localllm.api.v1.port import Asked, Port
from localllm.api.v1.respond import send_json
from localllm.core.errors import BadRequest
from localllm.core.generation import ChatPrompt
from localllm.core.openai import DetokenizeReply, DetokenizeRequest, TokenizeReply, TokenizeRequest


class Tokens:
    def __init__(self, port: Port) -> None:
        self._port = port

    async def tokenize(self, request: Request) -> Counted:
        with self._port.noting_refusals(request, "tokenize"):
            fields, headers = await self._port.read(request, TokenizeRequest)
            asked = self._port.asked(request, fields.model, "tok-")
            given = [fields.content, fields.prompt, fields.messages]
            if sum(each is not None for each in given) != 1:
                raise BadRequest("Give one of content, prompt and messages.", param="content")
        return Counted(self._tokens(fields, asked), headers)

    async def detokenize(self, request: Request) -> Counted:
        with self._port.noting_refusals(request, "detokenize"):
            fields, headers = await self._port.read(request, DetokenizeRequest)
            asked = self._port.asked(request, fields.model, "tok-")
        return Counted(self._text(fields, asked), headers)

    async def _tokens(self, fields: TokenizeRequest, asked: Asked) -> TokenizeReply:
        self._port.require_access(asked)
        pipeline = self._port.pipeline
        if fields.messages is not None:
            prompt = ChatPrompt(messages=normalise_messages(fields.messages))
            count = await pipeline.count_tokens(asked.model, prompt)
            return TokenizeReply(count=count, max_model_len=self._context_length(asked))
        text = fields.content if fields.content is not None else fields.prompt or ""
        tokens = await pipeline.tokenize(asked.model, text, add_special=fields.add_special)
        return TokenizeReply(count=len(tokens), tokens=tokens, max_model_len=self._context_length(asked))

    async def _text(self, fields: DetokenizeRequest, asked: Asked) -> DetokenizeReply:
        self._port.require_access(asked)
        text = await self._port.pipeline.detokenize(asked.model, fields.tokens)
        return DetokenizeReply(content=text, prompt=text)

    def _context_length(self, asked: Asked) -> int | None:
        manager = self._port.runtime.manager
        state = manager.state(manager.resolve(asked.model).name)
        return state.context_length if state else None


class Counted:
    """A short answer that ends with its client: the model may have to be loaded for it."""

    def __init__(self, work: Coroutine[Any, Any, Struct], headers: dict[str, str]) -> None:
        self._work = work
        self._headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            reply = await while_connected(receive, self._work)
        except ClientLeft:
            return
        await send_json(send, msgspec.json.encode(reply), self._headers)
