"""Ollama's requests → the chat or completion request that says the same, so that every rule of those holds here too."""

from __future__ import annotations

import json
from collections.abc import Sequence

from localllm.core.errors import BadRequest, Unsupported
from localllm.core.ollama_api import (
    OllamaChatRequest,
    OllamaFields,
    OllamaGenerateRequest,
    OllamaMessage,
    OllamaOptions,
)
from localllm.core.openai import (
    CalledFunction,
    CalledTool,
    ChatRequest,
    CompletionRequest,
    Content,
    FunctionTool,
    ImageContent,
    JsonObjectFormat,
    JsonSchemaFormat,
    ReasoningEffort,
    ResponseFormat,
    SchemaOfFormat,
    TextContent,
    WireMessage,
)

_SAME = (
    "temperature", "top_k", "top_p", "min_p", "typical_p", "seed", "repeat_penalty", "repeat_last_n",
    "presence_penalty", "frequency_penalty",
)  # fmt: skip


def chat_of(fields: OllamaChatRequest) -> ChatRequest:
    """Raises BadRequest for a tool's answer to a call that nobody made."""
    return _chat(fields, _messages(fields.messages), tools=fields.tools)


def generation_of(fields: OllamaGenerateRequest) -> ChatRequest | CompletionRequest:
    """A conversation of one turn or, with ``raw``, the text as it is. Raises Unsupported."""
    for name in ("suffix", "template"):
        if getattr(fields, name):
            raise Unsupported(f"{name} is not supported here.", param=name)
    if fields.raw:
        return _completion(fields)
    system = [WireMessage(role="system", content=fields.system)] if fields.system else []
    user = WireMessage(role="user", content=_content(fields.prompt, fields.images))
    return _chat(fields, [*system, user])


def _chat(
    fields: OllamaFields, messages: list[WireMessage], tools: list[FunctionTool] | None = None
) -> ChatRequest:
    options = fields.options or OllamaOptions()
    return ChatRequest(
        model=fields.model,
        messages=messages,
        tools=tools,
        response_format=_format(fields.format),
        reasoning_effort=_effort(fields.think),
        max_completion_tokens=_limit(options),
        stop=options.stop,
        keep_alive=fields.keep_alive,
        context_length=options.num_ctx,
        **{name: getattr(options, name) for name in _SAME},
    )


def _completion(fields: OllamaGenerateRequest) -> CompletionRequest:
    options = fields.options or OllamaOptions()
    if fields.format:
        raise Unsupported("format cannot be combined with raw.", param="format")
    return CompletionRequest(
        model=fields.model,
        prompt=fields.prompt,
        max_tokens=_limit(options) or -1,
        stop=options.stop,
        keep_alive=fields.keep_alive,
        context_length=options.num_ctx,
        **{name: getattr(options, name) for name in _SAME},
    )


def _limit(options: OllamaOptions) -> int | None:
    """Ollama's -1 and -2 are both as much as the context leaves."""
    return None if options.num_predict is None or options.num_predict < 0 else options.num_predict


def _messages(given: Sequence[OllamaMessage]) -> list[WireMessage]:
    """Calls get ids here; a tool's answer goes to the first call of its name that has none yet."""
    messages: list[WireMessage] = []
    unanswered: list[tuple[str, str]] = []
    for index, message in enumerate(given):
        calls = []
        for number, call in enumerate(message.tool_calls or ()):
            called = CalledTool(
                id=f"call_{index}_{number}",
                function=CalledFunction(
                    call.function.name, json.dumps(call.function.arguments, ensure_ascii=False)
                ),
            )
            calls.append(called)
            unanswered.append((called.function.name, called.id))
        answered = _answered(message, unanswered, index) if message.role == "tool" else None
        messages.append(
            WireMessage(
                role=message.role,
                content=_content(message.content, message.images),
                reasoning=message.thinking,
                tool_calls=calls or None,
                tool_call_id=answered,
            )
        )
    return messages


def _answered(message: OllamaMessage, unanswered: list[tuple[str, str]], index: int) -> str:
    for waiting in unanswered:
        if message.tool_name in (None, waiting[0]):
            unanswered.remove(waiting)
            return waiting[1]
    raise BadRequest("This tool message answers no call that was made.", param=f"messages[{index}].tool_name")


def _content(text: str, images: Sequence[str] | None) -> str | list[Content]:
    if not images:
        return text
    # the real format is read from the bytes
    return [TextContent(text), *(ImageContent(f"data:image/png;base64,{image}") for image in images)]


def _format(given: str | dict[str, object] | None) -> ResponseFormat | None:
    if isinstance(given, dict):
        return JsonSchemaFormat(SchemaOfFormat(name="response", schema=given))
    return JsonObjectFormat() if given == "json" else None


def _effort(think: bool | str | None) -> ReasoningEffort | None:
    match think:
        case True:
            return "medium"
        case False:
            return "none"
        case "low" | "medium" | "high":
            return think
        case _:
            return None
