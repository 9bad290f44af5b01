"""The wire types of ``/v1/messages``, which speaks as Anthropic's API does: requests with their ranges, and replies."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from localllm.core.openai import ModelName, Probability

ToolName = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]

# ---------------------------------------------------------------- content blocks


class TextBlock(Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class ImageSource(Struct, frozen=True, kw_only=True):
    """Only ``base64`` is read; the others are known to be refused by name."""

    type: Literal["base64", "url", "file"]
    media_type: str | None = None
    data: str | None = None


class ImageBlock(Struct, frozen=True, tag_field="type", tag="image"):
    source: ImageSource


class ToolUseBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_use"):
    id: str
    name: str
    input: dict[str, object] = {}


class ToolResultBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="tool_result"):
    tool_use_id: str
    content: str | list[TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock] = ""
    is_error: bool | None = None


class ThinkingBlock(Struct, frozen=True, kw_only=True, tag_field="type", tag="thinking"):
    thinking: str
    signature: str = ""


class RedactedThinkingBlock(Struct, frozen=True, tag_field="type", tag="redacted_thinking"):
    """Nothing that a model here could read."""


class DocumentBlock(Struct, frozen=True, tag_field="type", tag="document"):
    """Known only to be refused by name."""


class SearchResultBlock(Struct, frozen=True, tag_field="type", tag="search_result"):
    """Known only to be refused by name."""


class ToolReferenceBlock(Struct, frozen=True, tag_field="type", tag="tool_reference"):
    """Known only to be refused by name."""


Block = (
    TextBlock
    | ImageBlock
    | ToolUseBlock
    | ToolResultBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | DocumentBlock
    | SearchResultBlock
    | ToolReferenceBlock
)


class AnthropicMessage(Struct, frozen=True):
    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


# ---------------------------------------------------------------- tools and the request


class CustomTool(Struct, frozen=True, kw_only=True):
    name: ToolName
    input_schema: dict[str, object]
    description: str | None = None
    strict: bool | None = None


class AnthropicToolChoice(Struct, frozen=True, kw_only=True):
    type: Literal["auto", "any", "tool", "none"]
    name: str | None = None
    disable_parallel_tool_use: bool | None = None


class Thinking(Struct, frozen=True, kw_only=True):
    type: Literal["enabled", "disabled", "adaptive"]
    budget_tokens: Annotated[int, Meta(ge=1, le=1 << 30)] | None = None
    display: str | None = None


class CountTokensRequest(Struct, frozen=True, kw_only=True):
    """``POST /v1/messages/count_tokens``. ``tools`` that run at Anthropic are skipped and named in ``x-localllm-ignored``."""

    messages: list[AnthropicMessage]
    model: ModelName | None = None
    system: str | list[TextBlock] | None = None
    tools: Annotated[list[dict[str, object]], Meta(max_length=512)] | None = None
    tool_choice: AnthropicToolChoice | None = None
    thinking: Thinking | None = None
    cache_control: object = None


class MessagesRequest(CountTokensRequest, frozen=True, kw_only=True):
    """``POST /v1/messages``."""

    max_tokens: Annotated[int, Meta(ge=1, le=1 << 30)]
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Meta(ge=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=0, le=1 << 20)] | None = None
    top_p: Probability | None = None
    metadata: dict[str, object] | None = None
    service_tier: Literal["auto", "standard_only"] | None = None
    context_management: object = None
    output_config: object = None


# ---------------------------------------------------------------- replies


class AnthropicUsage(Struct, frozen=True, kw_only=True):
    """``input_tokens`` leaves out those that were read from the cache."""

    input_tokens: int
    cache_creation_input_tokens: int = 0
    cache_read_input_tokens: int
    output_tokens: int


StopReason = Literal["end_turn", "max_tokens", "stop_sequence", "tool_use", "refusal"]


class MessageReply(Struct, frozen=True, kw_only=True):
    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    model: str
    content: tuple[TextBlock | ThinkingBlock | ToolUseBlock, ...] = ()
    stop_reason: StopReason | None = None
    stop_sequence: str | None = None
    usage: AnthropicUsage


class TokenCount(Struct, frozen=True):
    input_tokens: int


class AnthropicErrorBody(Struct, frozen=True, kw_only=True):
    type: str
    message: str
    code: str | UnsetType = UNSET


class AnthropicError(Struct, frozen=True, kw_only=True):
    """What an Anthropic client expects instead of OpenAI's error body; ``code`` is ours."""

    type: Literal["error"] = "error"
    error: AnthropicErrorBody
    request_id: str | None = None
