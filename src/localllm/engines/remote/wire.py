"""The shapes of OpenAI's API as its imitators send them: fields may be missing, null, or of a later version."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, Struct, UnsetType, field
from msgspec.json import Decoder


class FunctionPart(Struct):
    name: str | None = None
    arguments: str | None = None


class CallPart(Struct):
    index: int | None = None
    id: str | None = None
    function: FunctionPart | None = None


class Delta(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallPart] | None = None


class Chance(Struct):
    token: str = ""
    logprob: float | None = None
    bytes: list[int] | None = None
    top_logprobs: list[Chance] | None = None


class Chances(Struct):
    """``content`` is the chat's form (llama.cpp uses it everywhere), the others are the legacy form of completions."""

    content: list[Chance] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class Piece(Struct):
    """One choice of a chunk: ``delta`` in a chat, ``text`` in a completion."""

    index: int = 0
    delta: Delta | None = None
    text: str | None = None
    finish_reason: str | None = None
    logprobs: Chances | None = None


class PromptDetails(Struct):
    cached_tokens: int | None = None


class CompletionDetails(Struct):
    reasoning_tokens: int | None = None
    accepted_prediction_tokens: int | None = None
    rejected_prediction_tokens: int | None = None


class WireUsage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptDetails | None = None
    completion_tokens_details: CompletionDetails | None = None


class WireError(Struct):
    """``code`` is a text at OpenAI and a number elsewhere; the ``n_`` figures are llama.cpp's."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    param: str | None = None
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None
    context_length: int | None = None
    prompt_tokens: int | None = None


class Chunk(Struct):
    choices: list[Piece] = []
    usage: WireUsage | None = None
    error: WireError | str | None = None


class ErrorBody(Struct):
    """``{"error": {…}}``, or the error's fields themselves (vLLM), or a text."""

    error: WireError | str | None = None
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    detail: Any = None


class Meta(Struct):
    n_ctx: int | None = None
    n_ctx_train: int | None = None


class ModelEntry(Struct):
    """``max_model_len`` is vLLM's and ours, ``context_length`` OpenRouter's and ours, ``meta`` llama.cpp's, the rest ours."""

    id: str
    owned_by: str | None = None
    max_model_len: int | None = None
    context_length: int | None = None
    max_context_length: int | None = None
    loaded: bool | None = None
    meta: Meta | None = None
    capabilities: Any = None


class ModelList(Struct):
    data: list[ModelEntry] = []


class TemplateAbilities(Struct):
    supports_tools: bool = False


class GenerationDefaults(Struct):
    n_ctx: int | None = None


class Props(Struct):
    """llama.cpp's ``/props``."""

    default_generation_settings: GenerationDefaults = field(default_factory=GenerationDefaults)
    chat_template_caps: TemplateAbilities | UnsetType = UNSET


class Embedding(Struct):
    embedding: list[float]
    index: int = 0


class Embeddings(Struct):
    data: list[Embedding] = []
    usage: WireUsage = field(default_factory=WireUsage)


chunk_decoder: Decoder[Chunk] = Decoder(Chunk)
error_decoder: Decoder[ErrorBody] = Decoder(ErrorBody)
