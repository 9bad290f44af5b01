"""The shapes of llama-server's HTTP answers, as far as we read them. Decoding typed and partial is what makes it fast."""

from __future__ import annotations

from msgspec import Struct, field
from msgspec.json import Decoder


class PromptProgress(Struct):
    total: int
    cache: int
    processed: int


class Timings(Struct):
    """Sent with the last chunk; milliseconds."""

    cache_n: int = 0
    prompt_n: int = 0
    prompt_ms: float = 0.0
    predicted_n: int = 0
    predicted_ms: float = 0.0


class TokenProbability(Struct):
    id: int
    token: str
    bytes: list[int] = []
    logprob: float | None = None
    top_logprobs: list[TokenProbability] = []


class FunctionDelta(Struct):
    name: str | None = None
    arguments: str | None = None


class ToolCallPart(Struct):
    index: int = 0
    id: str | None = None
    function: FunctionDelta | None = None


class Delta(Struct):
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[ToolCallPart] = []


class ChoiceLogprobs(Struct):
    content: list[TokenProbability] = []


class ChunkChoice(Struct):
    index: int = 0
    delta: Delta = field(default_factory=Delta)
    finish_reason: str | None = None
    logprobs: ChoiceLogprobs | None = None


class PromptTokensDetails(Struct):
    cached_tokens: int = 0


class WireUsage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: PromptTokensDetails = field(default_factory=PromptTokensDetails)


class WireError(Struct):
    """``type`` tells errors apart; the message is for a person."""

    message: str = ""
    type: str = ""
    code: int = 0
    n_prompt_tokens: int | None = None
    n_ctx: int | None = None


class ErrorBody(Struct):
    error: WireError


class ChatChunk(Struct):
    """One event of ``/v1/chat/completions``."""

    choices: list[ChunkChoice] = []
    usage: WireUsage | None = None
    timings: Timings | None = None
    prompt_progress: PromptProgress | None = None
    error: WireError | None = None


class TextChunk(Struct):
    """One event of ``/completion``; the last of each index has ``stop``."""

    index: int = 0
    content: str = ""
    stop: bool = False
    stop_type: str = ""
    stopping_word: str = ""
    tokens_predicted: int = 0
    tokens_evaluated: int = 0
    completion_probabilities: list[TokenProbability] = []
    timings: Timings | None = None
    prompt_progress: PromptProgress | None = None
    error: WireError | None = None


class Modalities(Struct):
    vision: bool = False


class TemplateAbilities(Struct):
    supports_tools: bool = False
    supports_tool_calls: bool = False
    supports_system_role: bool = True


class GenerationDefaults(Struct):
    n_ctx: int = 0


class Props(Struct):
    """``GET /props``."""

    default_generation_settings: GenerationDefaults = field(default_factory=GenerationDefaults)
    total_slots: int = 1
    modalities: Modalities = field(default_factory=Modalities)
    chat_template: str = ""
    chat_template_caps: TemplateAbilities = field(default_factory=TemplateAbilities)


class Tokens(Struct):
    tokens: list[int] = []


class Content(Struct):
    content: str = ""


class PromptText(Struct):
    prompt: str = ""


class InputTokens(Struct):
    input_tokens: int


class EmbeddingData(Struct):
    embedding: list[float]
    index: int = 0


class EmbeddingBody(Struct):
    data: list[EmbeddingData]
    usage: WireUsage = field(default_factory=WireUsage)


decode_chat_chunk = Decoder(ChatChunk).decode
decode_text_chunk = Decoder(TextChunk).decode
