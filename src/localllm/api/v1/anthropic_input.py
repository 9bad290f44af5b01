"""An Anthropic messages request → the chat request that says the same, so that every rule of chat completions holds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from localllm.api.errors import from_validation_error
from localllm.core.anthropic import (
    AnthropicMessage,
    AnthropicToolChoice,
    Block,
    CountTokensRequest,
    CustomTool,
    ImageBlock,
    MessagesRequest,
    RedactedThinkingBlock,
    TextBlock,
    Thinking,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
)
from localllm.core.errors import BadRequest, Unsupported
from localllm.core.openai import (
    CalledFunction,
    CalledTool,
    ChatRequest,
    Content,
    Function,
    FunctionName,
    FunctionTool,
    ImageContent,
    NamedTool,
    ReasoningEffort,
    TextContent,
    ToolChoice,
    WireMessage,
)

BILLING_HEADER = "x-anthropic-billing-header:"
_LITTLE_THINKING = 2048
_MUCH_THINKING = 16384


def as_chat(fields: CountTokensRequest) -> tuple[ChatRequest, tuple[str, ...]]:
    """The chat request, and what was skipped, by its path.

    Raises:
        BadRequest: a block or tool that is broken; ``param`` names it.
        Unsupported: what no model here can be given.
    """
    messages = _system(fields.system)
    for index, message in enumerate(fields.messages):
        messages += _messages(message, f"messages[{index}]")
    tools, skipped = _tools(fields.tools or ())
    choice = fields.tool_choice
    chat = ChatRequest(
        messages=messages,
        model=fields.model,
        tools=tools or None,
        tool_choice=_choice(choice),
        parallel_tool_calls=False if choice and choice.disable_parallel_tool_use else None,
        reasoning_effort=_effort(fields.thinking),
    )
    if isinstance(fields, MessagesRequest):
        chat = msgspec.structs.replace(
            chat,
            max_completion_tokens=fields.max_tokens,
            stop=fields.stop_sequences or None,
            temperature=fields.temperature,
            top_p=fields.top_p,
            top_k=fields.top_k,
            continue_final_message=_is_begun(messages) or None,
        )
    return chat, skipped


def without_billing_header(text: str) -> str:
    """The text without the line by which one client says, with a hash that differs each time, who pays.

    At the very front of the prompt it would make every request a new one to the prefix cache.
    """
    if not text.startswith(BILLING_HEADER):
        return text
    return text.partition("\n")[2].lstrip("\n")


def _is_begun(messages: Sequence[WireMessage]) -> bool:
    """Whether the answer was begun by the client: an assistant's turn at the end is gone on with."""
    return bool(messages) and messages[-1].role == "assistant" and not messages[-1].tool_calls


def _system(given: str | Sequence[TextBlock] | None) -> list[WireMessage]:
    if given is None:
        return []
    texts = [given] if isinstance(given, str) else [block.text for block in given]
    kept = [text for text in map(without_billing_header, texts) if text]
    return [WireMessage(role="system", content=[TextContent(text) for text in kept])] if kept else []


def _messages(message: AnthropicMessage, path: str) -> list[WireMessage]:
    """One turn; tool results stand in the user's turn there, and are messages of their own here, first."""
    if message.role == "system":
        return _system(
            message.content if isinstance(message.content, str) else _only_text(message.content, path)
        )
    if isinstance(message.content, str):
        return [WireMessage(role=message.role, content=message.content)]
    if message.role == "assistant":
        return [_assistant(message.content, path)]
    results: list[WireMessage] = []
    parts: list[Content] = []
    for index, block in enumerate(message.content):
        here = f"{path}.content[{index}]"
        if isinstance(block, ToolResultBlock):
            content = _result(block, here)
            results.append(WireMessage(role="tool", tool_call_id=block.tool_use_id, content=content))
        else:
            parts.append(_part(block, here))
    return [*results, *([WireMessage(role="user", content=parts)] if parts or not results else [])]


def _only_text(blocks: Sequence[Block], path: str) -> list[TextBlock]:
    texts = [block for block in blocks if isinstance(block, TextBlock)]
    if len(texts) < len(blocks):
        raise BadRequest("A system message can only hold text.", param=f"{path}.content")
    return texts


def _assistant(blocks: Sequence[Block], path: str) -> WireMessage:
    texts: list[Content] = []
    thoughts: list[str] = []
    calls: list[CalledTool] = []
    for index, block in enumerate(blocks):
        match block:
            case TextBlock(text):
                texts.append(TextContent(text))
            case ThinkingBlock(thinking=thinking):
                thoughts.append(thinking)
            case RedactedThinkingBlock():
                pass  # encrypted for a model elsewhere
            case ToolUseBlock():
                arguments = json.dumps(block.input, ensure_ascii=False)
                calls.append(CalledTool(id=block.id, function=CalledFunction(block.name, arguments)))
            case _:
                raise BadRequest(
                    "The assistant's turn can hold text, thinking and tool_use.",
                    param=f"{path}.content[{index}].type",
                )
    return WireMessage(
        role="assistant", content=texts, reasoning="\n".join(thoughts) or None, tool_calls=calls or None
    )


def _result(block: ToolResultBlock, path: str) -> str:
    """What a tool said, as text: that is all that chat templates take. A failure is marked as one."""
    if isinstance(block.content, str):
        text = block.content
    else:
        texts = []
        for index, part in enumerate(block.content):
            if not isinstance(part, TextBlock):
                raise Unsupported(
                    "A tool result can only hold text here.", param=f"{path}.content[{index}].type"
                )
            texts.append(part.text)
        text = "\n".join(texts)
    return f"Error: {text}" if block.is_error else text


def _part(block: Block, path: str) -> Content:
    match block:
        case TextBlock(text):
            return TextContent(text)
        case ImageBlock(source) if source.type == "base64":
            return ImageContent(f"data:{source.media_type or 'image/png'};base64,{source.data or ''}")
        case ImageBlock():
            raise Unsupported(
                "Images must be sent inside the request, as base64; addresses are not fetched.",
                param=f"{path}.source",
            )
        case _:
            raise Unsupported("Only text and images can be sent to a model here.", param=f"{path}.type")


def _tools(given: Sequence[Mapping[str, object]]) -> tuple[list[FunctionTool], tuple[str, ...]]:
    """The tools that the client runs; those of other types run at Anthropic and are skipped by name."""
    tools: list[FunctionTool] = []
    skipped: list[str] = []
    for index, entry in enumerate(given):
        if entry.get("type", "custom") not in ("custom", None):
            skipped.append(f"tools[{index}]:{entry.get('type')}")
            continue
        try:
            tool = msgspec.convert(entry, CustomTool)
        except msgspec.ValidationError as error:
            found = from_validation_error(error)
            path = f"tools[{index}]"
            param = f"{path}.{found.param}" if found.param else path
            raise BadRequest(f"Invalid tool {path}: {found.message}", param=param) from error
        function = Function(
            name=tool.name, description=tool.description, parameters=tool.input_schema, strict=tool.strict
        )
        tools.append(FunctionTool(function))
    return tools, tuple(skipped)


def _choice(given: AnthropicToolChoice | None) -> ToolChoice | None:
    if given is None:
        return None
    if given.type == "tool":
        if given.name is None:
            raise BadRequest("Missing required parameter: tool_choice.name.", param="tool_choice.name")
        return NamedTool(FunctionName(given.name))
    return "required" if given.type == "any" else given.type


def _effort(thinking: Thinking | None) -> ReasoningEffort | None:
    """How much to think, as chat templates are told it; left to the model when nothing (or ``adaptive``) is said."""
    if thinking is None or thinking.type == "adaptive":
        return None
    if thinking.type == "disabled":
        return "none"
    budget = thinking.budget_tokens or _LITTLE_THINKING
    if budget < _LITTLE_THINKING:
        return "low"
    return "medium" if budget < _MUCH_THINKING else "high"
