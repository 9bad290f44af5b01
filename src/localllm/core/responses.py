"""The wire types of ``/v1/responses``: requests field by field with their ranges, and the replies.

Input items come in many types, some without a type at all, so ``input`` is decoded item by item in ``localllm.api.v1``.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from localllm.core.openai import (
    Alternatives,
    Identifier,
    ImageUrl,
    ModelName,
    ReasoningEffort,
    SamplingFields,
    ServiceTier,
    TokenReply,
)

Json = object  # in a class that has a field of that name, "object" would be the field
ResponseId = Annotated[str, Meta(max_length=128)]

# ---------------------------------------------------------------- input items


class InputText(Struct, frozen=True, tag_field="type", tag="input_text"):
    text: str


class OutputTextPart(Struct, frozen=True, tag_field="type", tag="output_text"):
    text: str


class PlainText(Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class RefusalPart(Struct, frozen=True, tag_field="type", tag="refusal"):
    refusal: str


class InputImage(Struct, frozen=True, tag_field="type", tag="input_image"):
    image_url: str | ImageUrl | None = None
    file_id: str | None = None
    detail: str | None = None


class InputFile(Struct, frozen=True, tag_field="type", tag="input_file"):
    """Known only to be refused by name."""


InputPart = InputText | OutputTextPart | PlainText | RefusalPart | InputImage | InputFile


class MessageItem(Struct, frozen=True, kw_only=True):
    """A turn of the conversation; its ``type`` may be left out."""

    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[InputPart]


class FunctionCallItem(Struct, frozen=True, kw_only=True):
    """A call that the model made earlier."""

    call_id: str
    name: str
    arguments: str = "{}"


class FunctionCallOutputItem(Struct, frozen=True, kw_only=True):
    """What the call came to."""

    call_id: str
    output: str | list[InputPart]


class ReasoningPart(Struct, frozen=True):
    text: str


class ReasoningInputItem(Struct, frozen=True, kw_only=True):
    """What the model thought earlier, as it was handed out."""

    summary: list[ReasoningPart] = []
    content: list[ReasoningPart] | None = None


# ---------------------------------------------------------------- tools, format and the request


class ResponseFunctionTool(Struct, frozen=True, kw_only=True):
    name: Identifier
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class ToolReference(Struct, frozen=True, kw_only=True):
    """``tool_choice`` as an object: one function, or several that are allowed."""

    type: str
    name: str | None = None
    mode: Literal["auto", "required"] | None = None
    tools: list[dict[str, object]] | None = None


class ResponseTextFormat(Struct, frozen=True, kw_only=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: Identifier | None = None
    schema: dict[str, object] | None = None
    description: str | None = None
    strict: bool | None = None


class ResponseText(Struct, frozen=True, kw_only=True):
    format: ResponseTextFormat | None = None
    verbosity: str | None = None


class ResponseReasoning(Struct, frozen=True, kw_only=True):
    effort: ReasoningEffort | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesRequest(SamplingFields, frozen=True, kw_only=True):
    """``POST /v1/responses``. ``previous_response_id`` goes on from a response that was stored.

    ``truncation`` other than ``disabled`` is refused, since a prompt is never cut; ``background``, ``conversation`` and
    ``prompt`` are known only to be refused. ``tools`` of types other than ``function`` are skipped and named in
    ``x-localllm-ignored``.
    """

    input: str | list[dict[str, object]]
    model: ModelName | None = None
    instructions: str | None = None
    previous_response_id: ResponseId | None = None
    max_output_tokens: Annotated[int, Meta(ge=1, le=1 << 30)] | None = None
    tools: Annotated[list[dict[str, object]], Meta(max_length=128)] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolReference | None = None
    parallel_tool_calls: bool | None = None
    text: ResponseText | None = None
    reasoning: ResponseReasoning | None = None
    stream: bool | None = None
    store: bool | None = None
    include: list[str] | None = None
    top_logprobs: Alternatives | None = None
    service_tier: ServiceTier | None = None
    truncation: Literal["disabled", "auto"] | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    stream_options: object = None
    max_tool_calls: object = None

    background: bool | None = None
    conversation: object = None
    prompt: object = None


# ---------------------------------------------------------------- replies


class OutputText(Struct, frozen=True, kw_only=True):
    type: Literal["output_text"] = "output_text"
    text: str
    annotations: tuple[object, ...] = ()
    logprobs: tuple[TokenReply, ...] = ()


class ReasoningText(Struct, frozen=True, kw_only=True):
    type: Literal["reasoning_text"] = "reasoning_text"
    text: str


Status = Literal["in_progress", "completed", "incomplete", "failed"]


class OutputMessage(Struct, frozen=True, kw_only=True, tag_field="type", tag="message"):
    id: str
    status: Status
    role: Literal["assistant"] = "assistant"
    content: tuple[OutputText, ...]


class OutputReasoning(Struct, frozen=True, kw_only=True, tag_field="type", tag="reasoning"):
    id: str
    status: Status
    summary: tuple[object, ...] = ()
    content: tuple[ReasoningText, ...]


class OutputFunctionCall(Struct, frozen=True, kw_only=True, tag_field="type", tag="function_call"):
    id: str
    status: Status
    call_id: str
    name: str
    arguments: str


OutputItem = OutputMessage | OutputReasoning | OutputFunctionCall


class InputTokensDetails(Struct, frozen=True):
    cached_tokens: int


class OutputTokensDetails(Struct, frozen=True):
    reasoning_tokens: int


class ResponseUsage(Struct, frozen=True, kw_only=True):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(Struct, frozen=True):
    reason: Literal["max_output_tokens", "content_filter"]


class ResponseError(Struct, frozen=True):
    code: str
    message: str


class ResponseReply(Struct, frozen=True, kw_only=True):
    """The whole response; what was asked is repeated in it, as OpenAI does."""

    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Status
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    model: str
    output: tuple[OutputItem, ...] = ()
    parallel_tool_calls: bool = True
    previous_response_id: str | None = None
    reasoning: ResponseReasoning = ResponseReasoning()
    service_tier: str = "default"
    store: bool = True
    temperature: float | None = None
    text: ResponseText = ResponseText(format=ResponseTextFormat())
    tool_choice: Json = "auto"
    tools: list[dict[str, Json]] = []
    top_p: float | None = None
    truncation: Literal["disabled"] = "disabled"
    usage: ResponseUsage | None = None
    user: str | UnsetType | None = UNSET
    metadata: dict[str, str] = {}
    background: Literal[False] = False


class ResponseDeleted(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    deleted: Literal[True] = True
