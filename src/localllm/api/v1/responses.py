"""``/v1/responses``: asked with everything, or going on from a response that is kept."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from localllm.api.v1.chat import chat_generation
from localllm.api.v1.port import Asked, Port, with_skipped
from localllm.api.v1.respond import Generation, StreamedAnswer, WholeAnswer
from localllm.api.v1.responses_input import as_chat
from localllm.api.v1.responses_reply import (
    ResponseBuilder,
    ResponseChunks,
    ResponseCollector,
    as_messages,
)
from localllm.core.gateway import KeyInfo
from localllm.core.generation import GenerationRequest
from localllm.core.openai import WireMessage
from localllm.core.responses import (
    ResponseDeleted,
    ResponseReasoning,
    ResponseReply,
    ResponsesRequest,
    ResponseText,
    ResponseTextFormat,
)
from localllm.service.pipeline import Call
from localllm.service.stored_responses import StoredResponse


class Responses:
    def __init__(self, port: Port) -> None:
        self._port = port
        self._stored = port.runtime.responses

    async def create(self, request: Request) -> StreamedAnswer | WholeAnswer:
        with self._port.noting_refusals(request, "responses"):
            return await self._answer(request)

    async def get(self, request: Request) -> Response:
        return _json(self._stored.get(_key_name(request), request.path_params["id"]).reply)

    async def delete(self, request: Request) -> Response:
        response_id = str(request.path_params["id"])
        self._stored.delete(_key_name(request), response_id)
        return _json(ResponseDeleted(id=response_id))

    async def _answer(self, request: Request) -> StreamedAnswer | WholeAnswer:
        fields, headers = await self._port.read(request, ResponsesRequest)
        asked = self._port.asked(request, fields.model, "resp_")
        key = asked.key.name if asked.key else None
        previous = fields.previous_response_id
        earlier = self._stored.get(key, previous).conversation if previous else ()
        chat, conversation, skipped = as_chat(fields, earlier)
        generation_request, guard = chat_generation(chat, asked.id)
        call = Call(
            id=asked.id,
            endpoint="responses",
            model=asked.model,
            request=generation_request,
            client=asked.client,
            stream=bool(fields.stream),
            received=asked.received,
        )
        generation = Generation(
            events=self._port.generate(asked, call), headers=with_skipped(headers, skipped), guard=guard
        )
        builder = ResponseBuilder(_frame(fields, asked, generation_request), generation_request.tier)

        def keep(reply: ResponseReply) -> None:
            if fields.store is not False:
                self._keep(asked.key, reply, conversation)

        if fields.stream:
            return StreamedAnswer(generation, ResponseChunks(builder, keep), self._port.server)
        return WholeAnswer(generation, ResponseCollector(builder, keep))

    def _keep(self, key: KeyInfo | None, reply: ResponseReply, conversation: tuple[WireMessage, ...]) -> None:
        stored = StoredResponse(reply=reply, conversation=(*conversation, *as_messages(reply.output)))
        self._stored.put(key.name if key else None, stored)


def _frame(fields: ResponsesRequest, asked: Asked, request: GenerationRequest) -> ResponseReply:
    """The response before anything is said: what was asked, repeated."""
    text = fields.text or ResponseText()
    choice = fields.tool_choice
    return ResponseReply(
        id=asked.id,
        created_at=asked.created,
        status="in_progress",
        instructions=fields.instructions,
        max_output_tokens=fields.max_output_tokens,
        model=asked.model,
        parallel_tool_calls=fields.parallel_tool_calls is not False,
        previous_response_id=fields.previous_response_id,
        reasoning=fields.reasoning or ResponseReasoning(),
        service_tier=request.tier.value,
        store=fields.store is not False,
        temperature=fields.temperature,
        text=msgspec.structs.replace(text, format=text.format or ResponseTextFormat()),
        tool_choice=choice if choice is not None else "auto",
        tools=fields.tools or [],
        top_p=fields.top_p,
        user=fields.user,
        metadata=fields.metadata or {},
    )


def _key_name(request: Request) -> str | None:
    key: KeyInfo | None = request.state.key
    return key.name if key else None


def _json(reply: msgspec.Struct) -> Response:
    return Response(
        msgspec.json.encode(reply), media_type="application/json", headers={"cache-control": "no-store"}
    )
