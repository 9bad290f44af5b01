"""A Responses request → the chat request that says the same, so that every rule of chat completions holds for it too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec
from msgspec import Struct, structs

from localllm.api.errors import from_validation_error
from localllm.core.errors import BadRequest, Unsupported
from localllm.core.openai import (
    AllowedTool,
    AllowedToolList,
    AllowedTools,
    CalledFunction,
    CalledTool,
    ChatRequest,
    Content,
    Function,
    FunctionName,
    FunctionTool,
    ImageContent,
    JsonObjectFormat,
    JsonSchemaFormat,
    NamedTool,
    RefusalContent,
    ResponseFormat,
    SamplingFields,
    SchemaOfFormat,
    TextContent,
    ToolChoice,
    WireMessage,
)
from localllm.core.responses import (
    FunctionCallItem,
    FunctionCallOutputItem,
    InputImage,
    InputPart,
    InputText,
    MessageItem,
    OutputTextPart,
    PlainText,
    ReasoningInputItem,
    RefusalPart,
    ResponseFunctionTool,
    ResponsesRequest,
    ToolReference,
)

T = TypeVar("T", bound=Struct)

LOGPROBS = "message.output_text.logprobs"
_NOT_HERE = {
    "conversation": "Use previous_response_id.",
    "prompt": "Send the text itself.",
    "background": "Ask with stream, or wait for the answer.",
}


def as_chat(
    fields: ResponsesRequest, earlier: Sequence[WireMessage]
) -> tuple[ChatRequest, tuple[WireMessage, ...], tuple[str, ...]]:
    """The chat request; the conversation so far without the instructions (to be stored); what was skipped, by path.

    Raises:
        BadRequest: an item that is broken, or a combination that makes no sense; ``param`` names it.
        Unsupported: what cannot be had here.
    """
    _refuse_what_is_not_here(fields)
    conversation, skipped = messages_of(fields.input)
    conversation = (*earlier, *conversation)
    instructions = [WireMessage(role="system", content=fields.instructions)] if fields.instructions else []
    tools, skipped_tools = _tools(fields.tools or ())
    wants_logprobs = LOGPROBS in (fields.include or ()) or fields.top_logprobs is not None
    chat = ChatRequest(
        messages=[*instructions, *conversation],
        model=fields.model,
        tools=tools or None,
        tool_choice=_choice(fields.tool_choice, tools),
        parallel_tool_calls=fields.parallel_tool_calls,
        response_format=_format(fields),
        max_completion_tokens=fields.max_output_tokens,
        reasoning_effort=fields.reasoning.effort if fields.reasoning else None,
        logprobs=wants_logprobs or None,
        top_logprobs=fields.top_logprobs,
        service_tier=fields.service_tier,
        **{name: getattr(fields, name) for name in SamplingFields.__struct_fields__},
    )
    return chat, conversation, (*skipped, *skipped_tools)


def messages_of(
    given: str | Sequence[Mapping[str, object]],
) -> tuple[tuple[WireMessage, ...], tuple[str, ...]]:
    """Input items as messages: a turn's reasoning, text and calls become one; unknown types are skipped and named."""
    if isinstance(given, str):
        return (WireMessage(role="user", content=given),), ()
    messages: list[WireMessage] = []
    skipped: list[str] = []
    for index, item in enumerate(given):
        path = f"input[{index}]"
        converted = _message(item, path)
        if converted is None:
            skipped.append(f"{path}:{item.get('type')}")
        elif messages and _same_turn(messages[-1], converted):
            messages[-1] = _joined(messages[-1], converted)
        else:
            messages.append(converted)
    return tuple(messages), tuple(skipped)


def _message(item: Mapping[str, object], path: str) -> WireMessage | None:
    match item.get("type", "message"):
        case "message":
            turn = _decoded(item, MessageItem, path)
            return WireMessage(role=turn.role, content=_content(turn.content, f"{path}.content"))
        case "function_call":
            call = _decoded(item, FunctionCallItem, path)
            function = CalledFunction(call.name, call.arguments)
            return WireMessage(role="assistant", tool_calls=[CalledTool(id=call.call_id, function=function)])
        case "function_call_output":
            result = _decoded(item, FunctionCallOutputItem, path)
            content = _content(result.output, f"{path}.output")
            return WireMessage(role="tool", tool_call_id=result.call_id, content=content)
        case "reasoning":
            thought = _decoded(item, ReasoningInputItem, path)
            parts = thought.content or thought.summary
            return WireMessage(role="assistant", reasoning="\n".join(part.text for part in parts))
        case "item_reference":
            raise Unsupported(
                "Items cannot be referred to by id.",
                hint="Send the item, or use previous_response_id.",
                param=path,
            )
        case _:
            return None


def _decoded(item: Mapping[str, object], shape: type[T], path: str) -> T:
    try:
        return msgspec.convert(item, shape)
    except msgspec.ValidationError as error:
        found = from_validation_error(error)
        param = f"{path}.{found.param}" if found.param else path
        raise BadRequest(f"Invalid item {path}: {found.message}", param=param) from error


def _content(content: str | Sequence[InputPart], path: str) -> str | list[Content]:
    if isinstance(content, str):
        return content
    return [_part(part, f"{path}[{index}]") for index, part in enumerate(content)]


def _part(part: InputPart, path: str) -> Content:
    match part:
        case InputText(text) | OutputTextPart(text) | PlainText(text):
            return TextContent(text)
        case RefusalPart(refusal):
            return RefusalContent(refusal)
        case InputImage(image_url) if image_url is not None:
            return ImageContent(image_url)
        case _:
            raise Unsupported(
                "Only text, and images as data: URLs, can be sent to a model here.", param=f"{path}.type"
            )


def _same_turn(first: WireMessage, second: WireMessage) -> bool:
    """Reasoning before text before calls, and calls beside each other, are one turn of the assistant."""
    if first.role != "assistant" or second.role != "assistant":
        return False
    return not first.tool_calls or bool(second.tool_calls and not second.content)


def _joined(first: WireMessage, second: WireMessage) -> WireMessage:
    if first.content and second.content:
        content: str | list[Content] | None = [*_as_parts(first.content), *_as_parts(second.content)]
    else:
        content = first.content or second.content
    reasoning = [text for text in (first.reasoning, second.reasoning) if text]
    return structs.replace(
        first,
        content=content,
        reasoning="\n\n".join(reasoning) or None,
        tool_calls=[*(first.tool_calls or ()), *(second.tool_calls or ())] or None,
    )


def _as_parts(content: str | list[Content]) -> list[Content]:
    return [TextContent(content)] if isinstance(content, str) else content


def _tools(given: Sequence[Mapping[str, object]]) -> tuple[list[FunctionTool], tuple[str, ...]]:
    tools: list[FunctionTool] = []
    skipped: list[str] = []
    for index, entry in enumerate(given):
        if entry.get("type") != "function":
            skipped.append(f"tools[{index}]:{entry.get('type')}")
            continue
        tool = _decoded(entry, ResponseFunctionTool, f"tools[{index}]")
        tools.append(
            FunctionTool(
                Function(
                    name=tool.name,
                    description=tool.description,
                    parameters=tool.parameters,
                    strict=tool.strict,
                )
            )
        )
    return tools, tuple(skipped)


def _choice(given: str | ToolReference | None, tools: Sequence[FunctionTool]) -> ToolChoice | None:
    match given:
        case "none" | "auto" | "required":
            return given
        case ToolReference(type="function", name=str(name)):
            return NamedTool(FunctionName(name))
        case ToolReference(type="allowed_tools", tools=list(allowed)):
            names = [str(each.get("name")) for each in allowed if each.get("type") == "function"]
            listed = [AllowedTool(FunctionName(name)) for name in names]
            return AllowedTools(AllowedToolList(given.mode or "auto", listed))
        case ToolReference():
            raise Unsupported(f"There is no tool of the type {given.type[:64]!r} here.", param="tool_choice")
        case _:
            return None


def _format(fields: ResponsesRequest) -> ResponseFormat | None:
    asked = fields.text.format if fields.text else None
    if asked is None or asked.type == "text":
        return None
    if asked.type == "json_object":
        return JsonObjectFormat()
    if asked.schema is None:
        raise BadRequest("Missing required parameter: text.format.schema.", param="text.format.schema")
    return JsonSchemaFormat(
        SchemaOfFormat(
            name=asked.name or "response",
            schema=asked.schema,
            description=asked.description,
            strict=asked.strict,
        )
    )


def _refuse_what_is_not_here(fields: ResponsesRequest) -> None:
    if fields.truncation == "auto":
        raise Unsupported(
            "A prompt is never cut here.", hint="Leave truncation at 'disabled'.", param="truncation"
        )
    for name, hint in _NOT_HERE.items():
        if getattr(fields, name):
            raise Unsupported(f"{name} is not supported here.", hint=hint, param=name)
