"""``POST /v1/chat/completions``."""

from __future__ import annotations

from typing import Literal

from starlette.requests import Request

from localllm.api.v1.chat_reply import ChatChunks, ChatCollector
from localllm.api.v1.guard import AnswerGuard
from localllm.api.v1.messages import normalise_messages, text_of_parts
from localllm.api.v1.parameters import (
    max_tokens_of,
    only_one_constraint,
    require_stream_for_options,
    sampling_of,
    stop_of,
    tier_of,
)
from localllm.api.v1.port import Asked, Port
from localllm.api.v1.reply import ReplyHead
from localllm.api.v1.respond import Generation, StreamedAnswer, WholeAnswer
from localllm.api.v1.structured import Prepared, prepare
from localllm.api.v1.tools import normalise_tools
from localllm.core.errors import BadRequest, Unsupported
from localllm.core.generation import ChatPrompt, Constraint, GenerationRequest, JsonObject, JsonSchema
from localllm.core.openai import (
    ChatRequest,
    JsonObjectFormat,
    JsonSchemaFormat,
    ReasoningEffort,
    ResponseFormat,
)
from localllm.service.pipeline import Call

_NOT_HERE = {
    "functions": "Use tools.",
    "function_call": "Use tool_choice.",
    "audio": "Ask for text.",
    "web_search_options": "Give the model a tool that searches.",
}


class ChatCompletions:
    def __init__(self, port: Port) -> None:
        self._port = port

    async def create(self, request: Request) -> StreamedAnswer | WholeAnswer:
        with self._port.noting_refusals(request, "chat.completions"):
            return await self._answer(request)

    async def _answer(self, request: Request) -> StreamedAnswer | WholeAnswer:
        fields, headers = await self._port.read(request, ChatRequest)
        asked = self._port.asked(request, fields.model, "chatcmpl-")
        generation_request, guard = chat_generation(fields, asked.id)
        stream = bool(fields.stream)
        call = Call(
            id=asked.id,
            endpoint="chat.completions",
            model=asked.model,
            request=generation_request,
            client=asked.client,
            stream=stream,
            received=asked.received,
        )
        generation = Generation(
            events=self._port.generate(asked, call),
            headers=headers,
            prepare=self._port.preparation(fields, asked),
            guard=guard,
        )
        head = self._head(fields, asked, generation_request)
        if stream:
            return StreamedAnswer(generation, ChatChunks(head), self._port.server)
        return WholeAnswer(generation, ChatCollector(head))

    def _head(self, fields: ChatRequest, asked: Asked, request: GenerationRequest) -> ReplyHead:
        options = fields.stream_options
        return ReplyHead(
            id=asked.id,
            created=asked.created,
            model=asked.model,
            choices=request.n,
            tier=request.tier,
            include_usage=bool(options and options.include_usage),
            logprobs=request.logprobs is not None,
            reasoning_field=self._port.server.reasoning_field,
        )


def chat_generation(fields: ChatRequest, request_id: str) -> tuple[GenerationRequest, AnswerGuard | None]:
    """A decoded chat request → what an engine is asked, and who judges the answer (None: the grammar says it all).

    Raises:
        BadRequest: a combination or value that makes no sense; ``param`` names it.
        Unsupported: what no engine here can do.
    """
    require_stream_for_options(fields)
    _refuse_what_is_not_here(fields)
    tools, choice = normalise_tools(fields.tools, fields.tool_choice)
    constraint, prepared = _constraint(fields.response_format)
    constraint = only_one_constraint(constraint, fields.grammar)
    n = fields.n or 1
    request = GenerationRequest(
        request_id=request_id,
        prompt=ChatPrompt(
            messages=normalise_messages(fields.messages),
            tools=tools,
            tool_choice=choice,
            parallel_tool_calls=fields.parallel_tool_calls is not False,
            reasoning_effort=_effort(fields.reasoning_effort),
            template_arguments=fields.chat_template_kwargs or {},
            continue_final_message=_continued(fields),
        ),
        sampling=sampling_of(fields),
        max_tokens=max_tokens_of(
            ("max_completion_tokens", fields.max_completion_tokens), ("max_tokens", fields.max_tokens)
        ),
        stop=stop_of(fields.stop),
        constraint=constraint,
        logprobs=_logprobs(fields),
        n=n,
        prediction=_prediction(fields, n),
        tier=tier_of(fields.service_tier),
        cache_prompt=fields.cache_prompt is not False,
    )
    original = _schema_of(fields.response_format)
    guard = AnswerGuard(original, n) if prepared and prepared.check_after and original else None
    return request, guard


def _refuse_what_is_not_here(fields: ChatRequest) -> None:
    if fields.modalities and fields.modalities != ["text"]:
        raise Unsupported("Only the modality 'text' can be answered here.", param="modalities")
    for name, hint in _NOT_HERE.items():
        if getattr(fields, name) is not None:
            raise Unsupported(f"{name} is not supported here.", hint=hint, param=name)


def _effort(asked: ReasoningEffort | None) -> Literal["none", "minimal", "low", "medium", "high"] | None:
    """The two levels above high are high: no model here tells them apart."""
    return "high" if asked == "xhigh" or asked == "max" else asked


def _logprobs(fields: ChatRequest) -> int | None:
    if not fields.logprobs:
        if fields.top_logprobs is not None:
            raise BadRequest("top_logprobs needs logprobs to be true.", param="top_logprobs")
        return None
    return fields.top_logprobs or 0


def _continued(fields: ChatRequest) -> bool:
    if not fields.continue_final_message:
        return False
    if not fields.messages or fields.messages[-1].role != "assistant":
        raise BadRequest(
            "continue_final_message needs an assistant message at the end.", param="continue_final_message"
        )
    return True


def _prediction(fields: ChatRequest, n: int) -> str | None:
    """Predicted text; refused beside what it cannot be combined with, as OpenAI does."""
    if fields.prediction is None:
        return None
    clash = "n" if n > 1 else "logprobs" if fields.logprobs else "tools" if fields.tools else None
    if clash is not None:
        raise BadRequest(f"prediction cannot be combined with {clash}.", param=clash)
    return text_of_parts(fields.prediction.content) or None


def _schema_of(asked: ResponseFormat | None) -> dict[str, object] | None:
    match asked:
        case JsonObjectFormat(schema):
            return schema
        case JsonSchemaFormat(json_schema):
            return json_schema.schema
        case _:
            return None


def _constraint(asked: ResponseFormat | None) -> tuple[Constraint | None, Prepared | None]:
    """json_object is any object; a schema is simplified for the grammar, and says what it lost."""
    match asked:
        case JsonSchemaFormat(spec):
            if spec.schema is None:
                raise BadRequest(
                    "Missing required parameter: response_format.json_schema.schema.",
                    param="response_format.json_schema.schema",
                )
            prepared = prepare(spec.schema, "response_format.json_schema.schema")
            return JsonSchema(prepared.schema, spec.name), prepared
        case JsonObjectFormat(schema) if schema:
            prepared = prepare(schema, "response_format.schema")
            return JsonSchema(prepared.schema), prepared
        case JsonObjectFormat():
            return JsonObject(), None
        case _:
            return None, None
