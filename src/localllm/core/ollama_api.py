"""The wire types of the port's ``/api/*``, which speaks as Ollama does, so that its clients work on any engine."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, field

from localllm.core.openai import (
    FunctionTool,
    LastN,
    ModelName,
    Penalty,
    Probability,
    Seed,
    Temperature,
)

# ---------------------------------------------------------------- requests


class OllamaFunctionCall(Struct, frozen=True, kw_only=True):
    name: str
    arguments: dict[str, object] = {}


class OllamaToolCall(Struct, frozen=True, kw_only=True):
    function: OllamaFunctionCall


class OllamaMessage(Struct, frozen=True, kw_only=True):
    """``images`` are base64; a tool's answer names the tool, since calls have no ids here."""

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    thinking: str | None = None
    images: list[str] | None = None
    tool_calls: list[OllamaToolCall] | None = None
    tool_name: str | None = None


class OllamaOptions(Struct, frozen=True, kw_only=True):
    """``num_ctx`` is the context of one request; ``num_predict`` below 0 is as much as the context leaves."""

    num_ctx: Annotated[int, Meta(ge=1, le=1 << 30)] | None = None
    num_predict: Annotated[int, Meta(ge=-2, le=1 << 30)] | None = None
    temperature: Temperature | None = None
    top_k: Annotated[int, Meta(ge=-1, le=1 << 20)] | None = None
    top_p: Probability | None = None
    min_p: Probability | None = None
    typical_p: Probability | None = None
    seed: Seed | None = None
    stop: str | list[str] | None = None
    repeat_penalty: Annotated[float, Meta(ge=0, le=10)] | None = None
    repeat_last_n: LastN | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None


class OllamaFields(Struct, frozen=True, kw_only=True):
    """What both generating endpoints share. ``format`` is ``json`` or a JSON Schema; without ``stream`` it streams."""

    model: ModelName
    format: Literal["json", ""] | dict[str, object] | None = None
    options: OllamaOptions | None = None
    stream: bool | None = None
    think: bool | Literal["low", "medium", "high"] | None = None
    keep_alive: float | str | None = None


class OllamaChatRequest(OllamaFields, frozen=True, kw_only=True):
    """``POST /api/chat``. No messages: load the model."""

    messages: list[OllamaMessage] = []
    tools: Annotated[list[FunctionTool], Meta(max_length=128)] | None = None


class OllamaGenerateRequest(OllamaFields, frozen=True, kw_only=True):
    """``POST /api/generate``. ``raw`` leaves out the chat template. No prompt: load the model."""

    prompt: str = ""
    system: str | None = None
    images: list[str] | None = None
    raw: bool | None = None
    suffix: str | None = None
    template: str | None = None


class OllamaEmbedRequest(Struct, frozen=True, kw_only=True):
    """``POST /api/embed``."""

    model: ModelName
    input: str | list[str]
    truncate: bool | None = None
    dimensions: Annotated[int, Meta(ge=1, le=65536)] | None = None
    keep_alive: float | str | None = None
    options: dict[str, object] | None = None


class OllamaShowRequest(Struct, frozen=True, kw_only=True):
    """``POST /api/show``; older clients send ``name``."""

    model: ModelName | None = None
    name: ModelName | None = None
    verbose: bool | None = None


# ---------------------------------------------------------------- replies


class OllamaError(Struct, frozen=True):
    error: str


class OllamaReplyMessage(Struct, frozen=True, kw_only=True):
    role: Literal["assistant"] = "assistant"
    content: str = ""
    thinking: str | UnsetType = UNSET
    tool_calls: list[OllamaToolCall] | UnsetType = UNSET


class OllamaPiece(Struct, frozen=True, kw_only=True):
    """One line of a stream, or the whole answer; the figures (nanoseconds, tokens) stand in the last."""

    model: str
    created_at: str
    message: OllamaReplyMessage | UnsetType = UNSET
    response: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    done: bool = False
    done_reason: str | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET


class OllamaEmbedReply(Struct, frozen=True, kw_only=True):
    model: str
    embeddings: list[tuple[float, ...]]
    total_duration: int
    load_duration: int = 0
    prompt_eval_count: int


class OllamaDetails(Struct, frozen=True, kw_only=True):
    parent_model: str = ""
    format: str = "gguf"
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaModel(Struct, frozen=True, kw_only=True):
    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: OllamaDetails


class OllamaModelList(Struct, frozen=True):
    models: list[OllamaModel]


class OllamaRunning(Struct, frozen=True, kw_only=True):
    """``size_vram`` is what the engine measured or, before that, what was planned."""

    name: str
    model: str
    size: int
    digest: str
    details: OllamaDetails
    expires_at: str
    size_vram: int
    context_length: int | None


class OllamaRunningList(Struct, frozen=True):
    models: list[OllamaRunning]


class OllamaShowReply(Struct, frozen=True, kw_only=True):
    license: str = ""
    modelfile: str = ""
    parameters: str = ""
    template: str = ""
    details: OllamaDetails
    model_info: dict[str, object] = field(default_factory=dict)
    capabilities: list[str]
    modified_at: str


class OllamaVersion(Struct, frozen=True):
    version: str
