"""What one generation is: the request every engine takes and the events every engine streams.

The port, the chats and the batch runner build a ``GenerationRequest``; an engine answers with ``Event``s. The
port has already normalised the request (roles merged, a named tool_choice reduced to that one tool and
``required``, numbers range-checked), so an engine never sees an OpenAI spelling.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

# ---------------------------------------------------------------- prompt


class TextPart(Struct, frozen=True, tag="text"):
    text: str


class ImagePart(Struct, frozen=True, tag="image"):
    """One image, already fetched: ``data`` are the file's bytes, ``media_type`` its MIME type."""

    data: bytes
    media_type: str


ContentPart = TextPart | ImagePart


class ToolCall(Struct, frozen=True):
    """``arguments`` is the JSON text as the model wrote it."""

    id: str
    name: str
    arguments: str


class Message(Struct, frozen=True, kw_only=True):
    role: Literal["system", "user", "assistant", "tool"]
    content: str | tuple[ContentPart, ...] = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


class Tool(Struct, frozen=True):
    """A function the model may call; ``parameters`` is its JSON Schema."""

    name: str
    description: str = ""
    parameters: dict[str, object] = {}
    strict: bool = False


class ChatPrompt(Struct, frozen=True, kw_only=True, tag="chat"):
    """``continue_final_message``: the last (assistant) message is continued instead of a new one begun."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    tool_choice: Literal["none", "auto", "required"] = "auto"
    parallel_tool_calls: bool = True
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high"] | None = None
    template_arguments: dict[str, object] = {}
    continue_final_message: bool = False


class TextPrompt(Struct, frozen=True, tag="raw"):
    text: str


class TokenPrompt(Struct, frozen=True, tag="tokens"):
    tokens: tuple[int, ...]


Prompt = ChatPrompt | TextPrompt | TokenPrompt

# ---------------------------------------------------------------- how to answer


class Sampling(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``None`` leaves a field to the model's own default, then the engine's. Meanings are llama.cpp's.

    ``logit_bias`` maps a token id to an additive bias in [-100, 100]. ``seed`` None draws a fresh one.
    """

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    typical_p: float | None = None
    top_n_sigma: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    dry_multiplier: float | None = None
    dry_base: float | None = None
    dry_allowed_length: int | None = None
    dry_penalty_last_n: int | None = None
    xtc_probability: float | None = None
    xtc_threshold: float | None = None
    mirostat: Literal[0, 1, 2] | None = None
    mirostat_tau: float | None = None
    mirostat_eta: float | None = None
    seed: int | None = None
    logit_bias: dict[int, float] = {}


class JsonObject(Struct, frozen=True, tag="json_object"):
    """Any JSON object, enforced."""


class JsonSchema(Struct, frozen=True, tag="json_schema"):
    schema: dict[str, object]
    name: str = "response"
    strict: bool = True


class Grammar(Struct, frozen=True, tag="grammar"):
    """llama.cpp's GBNF."""

    gbnf: str


Constraint = JsonObject | JsonSchema | Grammar


class Tier(StrEnum):
    """Service tier, best first: priority is scheduled before default before flex; flex may be parked."""

    PRIORITY = "priority"
    DEFAULT = "default"
    FLEX = "flex"


class GenerationRequest(Struct, frozen=True, kw_only=True):
    """``max_tokens`` None = as many as the context leaves. ``logprobs`` None = none, 0…20 = that many alternatives.

    ``prediction`` is text the answer is expected to repeat. ``keep_partial_utf8`` is never wanted: engines hold
    back bytes until they are whole characters.
    """

    request_id: str
    prompt: Prompt
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    constraint: Constraint | None = None
    logprobs: int | None = None
    n: int = 1
    prediction: str | None = None
    tier: Tier = Tier.DEFAULT
    cache_prompt: bool = True


# ---------------------------------------------------------------- events


class Progress(Struct, frozen=True, tag="progress"):
    """Prefill is under way: ``processed`` of ``total`` prompt tokens (cached ones count as processed)."""

    processed: int
    total: int


class Started(Struct, frozen=True, tag="started"):
    """The prompt is accepted and counted; sent exactly once, before any text.

    ``context_length`` is what this one sequence really has; ``prompt_tokens`` never exceeds it. None = the engine
    (Ollama) counts only at the end; ``Usage`` has the figures then.
    """

    prompt_tokens: int | None
    cached_tokens: int | None
    context_length: int


class TokenLogprob(Struct, frozen=True):
    """``logprob`` is natural log; ``token_bytes`` are the token's own bytes, which may be part of a character."""

    token: str
    logprob: float
    token_bytes: bytes
    token_id: int | None = None
    top: tuple[TokenLogprob, ...] = ()


class TextDelta(Struct, frozen=True, tag="text"):
    """Whole characters only; stop strings and markers never appear. ``choice`` counts from 0 to n - 1."""

    text: str
    choice: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


class ReasoningDelta(Struct, frozen=True, tag="reasoning"):
    text: str
    choice: int = 0


class ToolCallStart(Struct, frozen=True, tag="tool_call"):
    index: int
    id: str
    name: str
    choice: int = 0


class ToolCallDelta(Struct, frozen=True, tag="tool_arguments"):
    index: int
    arguments: str
    choice: int = 0


class FinishReason(StrEnum):
    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    CONTENT_FILTER = "content_filter"


class Finished(Struct, frozen=True, tag="finished"):
    """One choice ended; sent exactly once per choice. ``stop_sequence`` is the stop string that ended it."""

    reason: FinishReason
    choice: int = 0
    stop_sequence: str | None = None


class Usage(Struct, frozen=True, kw_only=True, tag="usage"):
    """The last event, exactly once: sums over all choices. Times in milliseconds as the engine measured them.

    ``reasoning_tokens`` are part of ``completion_tokens``. None = the engine cannot tell.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    reasoning_tokens: int = 0
    accepted_prediction_tokens: int = 0
    rejected_prediction_tokens: int = 0
    queue_ms: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    served_tier: Tier | None = None


Event = Progress | Started | TextDelta | ReasoningDelta | ToolCallStart | ToolCallDelta | Finished | Usage
