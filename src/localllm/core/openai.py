"""The wire types of the OpenAI-compatible port: what a request may hold, field by field, with its range.

Shapes and ranges only. A value of the wrong type or out of range fails to decode, with the path of the field; rules
that need more than one field, and the translation into a ``GenerationRequest``, are in ``localllm.api.v1``. Fields
that OpenAI has are spelled as OpenAI spells them; the local ones carry the names of ``core.generation``. Optional
fields may be null, as OpenAI allows. Replies are shapes too: field order is the order on the wire.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

# ---------------------------------------------------------------- ranges

_MAX_TOKENS = 1 << 30
MAX_IDENTIFIER = 512

ModelName = Annotated[str, Meta(max_length=MAX_IDENTIFIER)]
# Functions and schemas are named inside grammars and templates, so only these characters are safe.
Identifier = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9_.-]{1,64}$")]
Temperature = Annotated[float, Meta(ge=0, le=2)]
Probability = Annotated[float, Meta(ge=0, le=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Alternatives = Annotated[int, Meta(ge=0, le=20)]
Choices = Annotated[int, Meta(ge=1, le=64)]
TokenLimit = Annotated[int, Meta(ge=-1, le=_MAX_TOKENS)]
TokenId = Annotated[int, Meta(ge=0, le=(1 << 31) - 1)]
Seed = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
Bias = Annotated[float, Meta(ge=-100, le=100)]
LastN = Annotated[int, Meta(ge=-1, le=_MAX_TOKENS)]
ServiceTier = Literal["auto", "default", "flex", "scale", "priority", "fast"]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]

# ---------------------------------------------------------------- messages


class TextContent(Struct, frozen=True, tag_field="type", tag="text"):
    text: str


class RefusalContent(Struct, frozen=True, tag_field="type", tag="refusal"):
    refusal: str


class ImageUrl(Struct, frozen=True):
    url: str
    detail: str | None = None


class ImageContent(Struct, frozen=True, tag_field="type", tag="image_url"):
    image_url: ImageUrl | str


class AudioContent(Struct, frozen=True, tag_field="type", tag="input_audio"):
    """Known only to be refused by name."""


class FileContent(Struct, frozen=True, tag_field="type", tag="file"):
    """Known only to be refused by name."""


Content = TextContent | ImageContent | RefusalContent | AudioContent | FileContent


class CalledFunction(Struct, frozen=True):
    name: str
    arguments: str = "{}"


class CalledTool(Struct, frozen=True):
    id: str
    function: CalledFunction
    type: Literal["function"] = "function"


class WireMessage(Struct, frozen=True, kw_only=True):
    """``reasoning`` and ``reasoning_content`` are both accepted: clients echo whichever they were given."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Content] | None = None
    name: str | None = None
    tool_calls: list[CalledTool] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


# ---------------------------------------------------------------- tools


class Function(Struct, frozen=True, kw_only=True):
    name: Identifier
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None


class FunctionTool(Struct, frozen=True, tag_field="type", tag="function"):
    function: Function


class FunctionName(Struct, frozen=True):
    name: str


class NamedTool(Struct, frozen=True, tag_field="type", tag="function"):
    function: FunctionName


class AllowedTool(Struct, frozen=True):
    function: FunctionName
    type: Literal["function"] = "function"


class AllowedToolList(Struct, frozen=True):
    mode: Literal["auto", "required"]
    tools: list[AllowedTool]


class AllowedTools(Struct, frozen=True, tag_field="type", tag="allowed_tools"):
    allowed_tools: AllowedToolList


ToolChoice = Literal["none", "auto", "required"] | NamedTool | AllowedTools

# ---------------------------------------------------------------- formats and options


class TextFormat(Struct, frozen=True, tag_field="type", tag="text"):
    pass


class JsonObjectFormat(Struct, frozen=True, tag_field="type", tag="json_object"):
    """``schema`` is llama.cpp's spelling of a schema without a name."""

    schema: dict[str, object] | None = None


class SchemaOfFormat(Struct, frozen=True, kw_only=True):
    name: Identifier
    schema: dict[str, object] | None = None
    description: str | None = None
    strict: bool | None = None


class JsonSchemaFormat(Struct, frozen=True, tag_field="type", tag="json_schema"):
    json_schema: SchemaOfFormat


ResponseFormat = TextFormat | JsonObjectFormat | JsonSchemaFormat


class StreamOptions(Struct, frozen=True):
    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class Prediction(Struct, frozen=True):
    content: str | list[TextContent]
    type: Literal["content"] = "content"


# ---------------------------------------------------------------- requests


class SamplingFields(Struct, frozen=True, kw_only=True):
    """What chat and plain completions share: OpenAI's sampling fields, then the local ones."""

    temperature: Temperature | None = None
    top_p: Probability | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None
    seed: Seed | None = None
    logit_bias: Annotated[dict[str, Bias], Meta(max_length=1024)] | None = None

    top_k: Annotated[int, Meta(ge=-1, le=1 << 20)] | None = None
    min_p: Probability | None = None
    typical_p: Probability | None = None
    top_n_sigma: Annotated[float, Meta(ge=-1, le=100)] | None = None
    repeat_penalty: Annotated[float, Meta(ge=0, le=10)] | None = None
    repeat_last_n: LastN | None = None
    dry_multiplier: Annotated[float, Meta(ge=0, le=100)] | None = None
    dry_base: Annotated[float, Meta(ge=1, le=100)] | None = None
    dry_allowed_length: Annotated[int, Meta(ge=0, le=_MAX_TOKENS)] | None = None
    dry_penalty_last_n: LastN | None = None
    xtc_probability: Probability | None = None
    xtc_threshold: Probability | None = None
    mirostat: Literal[0, 1, 2] | None = None
    mirostat_tau: Annotated[float, Meta(ge=0, le=100)] | None = None
    mirostat_eta: Annotated[float, Meta(ge=0, le=100)] | None = None


class GenerationFields(SamplingFields, frozen=True, kw_only=True):
    """The fields of both generating endpoints that are not about sampling.

    ``store`` … ``prompt_cache_key`` change no answer; they are accepted so that clients need no special case.
    """

    model: ModelName | None = None
    max_tokens: TokenLimit | None = None
    n: Choices | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    service_tier: ServiceTier | None = None
    grammar: Annotated[str, Meta(min_length=1, max_length=1 << 16)] | None = None
    cache_prompt: bool | None = None
    keep_alive: Annotated[float, Meta(ge=-1, le=31_536_000)] | str | None = None
    context_length: Annotated[int, Meta(ge=1, le=_MAX_TOKENS)] | None = None

    store: bool | None = None
    metadata: dict[str, str] | None = None
    user: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None


class ChatRequest(GenerationFields, frozen=True, kw_only=True):
    """``POST /v1/chat/completions``. ``max_completion_tokens`` wins over ``max_tokens``.

    ``functions`` … ``web_search_options`` are known only to be refused: an answer without them would be another one.
    """

    messages: list[WireMessage]
    tools: Annotated[list[FunctionTool], Meta(max_length=128)] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    response_format: ResponseFormat | None = None
    logprobs: bool | None = None
    top_logprobs: Alternatives | None = None
    max_completion_tokens: TokenLimit | None = None
    prediction: Prediction | None = None
    reasoning_effort: ReasoningEffort | None = None
    modalities: list[str] | None = None
    chat_template_kwargs: dict[str, object] | None = None
    continue_final_message: bool | None = None

    functions: object = None
    function_call: object = None
    audio: object = None
    web_search_options: object = None


class CompletionRequest(GenerationFields, frozen=True, kw_only=True):
    """``POST /v1/completions``. ``prompt`` is one or many texts or token lists."""

    prompt: str | list[str | TokenId | list[TokenId]]
    logprobs: Alternatives | None = None
    echo: bool | None = None
    best_of: Choices | None = None
    suffix: str | None = None


class EmbeddingRequest(Struct, frozen=True, kw_only=True):
    """``POST /v1/embeddings``. ``input`` is one or many texts or token lists."""

    input: str | list[str | TokenId | list[TokenId]]
    model: ModelName | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=65536)] | None = None
    user: str | None = None


class TokenizeRequest(Struct, frozen=True, kw_only=True):
    """``POST /v1/tokenize``: a text (``content`` as llama.cpp calls it, ``prompt`` as vLLM does), or messages to count.

    ``add_special`` puts the model's own first token before the text.
    """

    model: ModelName | None = None
    content: str | None = None
    prompt: str | None = None
    messages: list[WireMessage] | None = None
    add_special: bool = False


class DetokenizeRequest(Struct, frozen=True, kw_only=True):
    """``POST /v1/detokenize``."""

    tokens: Annotated[list[TokenId], Meta(max_length=1 << 20)]
    model: ModelName | None = None


# ---------------------------------------------------------------- replies


class PromptTokensDetails(Struct, frozen=True):
    cached_tokens: int
    audio_tokens: int = 0


class CompletionTokensDetails(Struct, frozen=True, kw_only=True):
    reasoning_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int
    audio_tokens: int = 0


class UsageReply(Struct, frozen=True, kw_only=True):
    """Sums over all choices."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails


class Alternative(Struct, frozen=True):
    """``bytes`` are the token's own bytes as integers, which may be part of a character."""

    token: str
    logprob: float
    bytes: list[int]


class TokenReply(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[Alternative]


class ChatLogprobs(Struct, frozen=True):
    content: list[TokenReply]
    refusal: None = None


class ChatReplyMessage(Struct, frozen=True, kw_only=True):
    """``content`` is null only when the answer is tool calls and nothing else."""

    role: Literal["assistant"] = "assistant"
    content: str | None
    refusal: None = None
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    tool_calls: list[CalledTool] | UnsetType = UNSET


class ChatChoice(Struct, frozen=True, kw_only=True):
    index: int
    message: ChatReplyMessage
    logprobs: ChatLogprobs | None
    finish_reason: str


class ChatReply(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[ChatChoice]
    usage: UsageReply
    service_tier: str


class TextLogprobs(Struct, frozen=True):
    """``text_offset[i]`` is where token i begins in the choice's text, in characters."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]]
    text_offset: list[int]


class TextChoice(Struct, frozen=True, kw_only=True):
    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: str | None


class CompletionReply(Struct, frozen=True, kw_only=True):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[TextChoice]
    usage: UsageReply


class EmbeddingItem(Struct, frozen=True, kw_only=True):
    """``embedding`` is a list of floats, or base64 of little-endian float32."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: tuple[float, ...] | str


class EmbeddingUsage(Struct, frozen=True):
    prompt_tokens: int
    total_tokens: int


class EmbeddingReply(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[EmbeddingItem]
    model: str
    usage: EmbeddingUsage


class ModelReply(Struct, frozen=True, kw_only=True):
    """OpenAI's four fields, then what local clients look for.

    ``context_length`` and ``max_model_len`` are what one request really gets (null until the model is loaded);
    ``max_context_length`` is what the model was trained for.
    """

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str
    context_length: int | None = None
    max_model_len: int | None = None
    max_context_length: int | None = None
    capabilities: list[str] = field(default_factory=list)
    loaded: bool = False
    size_bytes: int | None = None
    quantization: str | None = None
    parameters: int | None = None
    architecture: str | None = None
    engine: str | None = None


class ModelListReply(Struct, frozen=True, kw_only=True):
    object: Literal["list"] = "list"
    data: list[ModelReply]


class TokenizeReply(Struct, frozen=True, kw_only=True):
    """``tokens`` are not there for messages, whose template may hold tokens that no text has."""

    count: int
    tokens: list[int] | UnsetType = UNSET
    max_model_len: int | None = None


class DetokenizeReply(Struct, frozen=True, kw_only=True):
    """The same text under the names of llama.cpp and vLLM."""

    content: str
    prompt: str
