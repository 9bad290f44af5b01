"""What a ``ScriptedEngine`` is told to do: the steps of a script, and the answer it gives without one."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localllm.core.errors import LocalLLMError
from localllm.core.generation import (
    ChatPrompt,
    FinishReason,
    GenerationRequest,
    ImagePart,
    JsonObject,
    JsonSchema,
    Message,
    Prompt,
    TextPart,
    TextPrompt,
    TokenPrompt,
)

_IMAGE_TOKENS = 16


@dataclass(frozen=True)
class Text:
    """Answer this text, one word a token."""

    text: str


@dataclass(frozen=True)
class Reasoning:
    text: str


@dataclass(frozen=True)
class Raw:
    """Tokens given as bytes, which may end inside a character: the engine must hold those back."""

    chunks: tuple[bytes, ...]


@dataclass(frozen=True)
class CallTool:
    name: str
    arguments: str


@dataclass(frozen=True)
class Flood:
    """``tokens`` times the same word."""

    tokens: int
    word: str = " word"


@dataclass(frozen=True)
class Wait:
    """Go on when the test sets the event."""

    event: asyncio.Event


@dataclass(frozen=True)
class Hang:
    """Say nothing more. The engine's ``token_timeout_s`` turns it into EngineStalled; None hangs for good."""


@dataclass(frozen=True)
class Crash:
    """The engine's process dies: every open request fails and ``exited`` is set."""

    exit_code: int = -6
    stderr_tail: str = "GGML_ASSERT failed"


@dataclass(frozen=True)
class Fail:
    """Only this request fails."""

    error: LocalLLMError


@dataclass(frozen=True)
class Prefill:
    """Say that so many of the prompt's tokens were processed. Only before ``Start``."""

    processed: int


@dataclass(frozen=True)
class Start:
    """Steps before this one happen before ``Started`` is sent; a script without it starts at once."""


@dataclass(frozen=True)
class End:
    """End the choice here with this reason instead of ``stop``."""

    reason: FinishReason = FinishReason.STOP


Step = Text | Reasoning | Raw | CallTool | Flood | Wait | Hang | Crash | Fail | Prefill | Start | End
Script = Sequence[Step] | Callable[[GenerationRequest], Sequence[Step]]


def split_at_start(script: Sequence[Step]) -> tuple[Sequence[Step], Sequence[Step]]:
    for index, step in enumerate(script):
        if isinstance(step, Start):
            return script[:index], script[index + 1 :]
    return (), script


def echo(request: GenerationRequest) -> Sequence[Step]:
    """The answer without a script: honours the constraint and a required tool, else repeats what was said."""
    prompt = request.prompt
    if isinstance(prompt, ChatPrompt) and prompt.tools and prompt.tool_choice == "required":
        tool = prompt.tools[0]
        return [CallTool(tool.name, json.dumps(_example(tool.parameters)))]
    said = last_text(prompt)
    match request.constraint:
        case JsonObject():
            return [Text(json.dumps({"said": said}))]
        case JsonSchema(schema=schema):
            return [Text(json.dumps(_example(schema)))]
        case _:
            return [Text(f"You said: {said}")]


def _example(schema: object) -> object:
    """A small value that fits a JSON Schema made of type, properties, items, enum and const."""
    if not isinstance(schema, dict):
        return {}
    if "const" in schema:
        return schema["const"]
    if "enum" in schema:
        return schema["enum"][0]
    match schema.get("type", "object"):
        case "object":
            return {name: _example(value) for name, value in schema.get("properties", {}).items()}
        case "array":
            return [_example(schema["items"])] if "items" in schema else []
        case "integer":
            return 1
        case "number":
            return 1.5
        case "boolean":
            return True
        case "null":
            return None
        case _:
            return "text"


def last_text(prompt: Prompt) -> str:
    match prompt:
        case TextPrompt(text):
            return text
        case TokenPrompt(tokens):
            return " ".join(str(token) for token in tokens)
        case ChatPrompt():
            return text_of(prompt.messages[-1]) if prompt.messages else ""


def text_of(message: Message) -> str:
    if isinstance(message.content, str):
        return message.content
    image = " image" * _IMAGE_TOKENS
    return "".join(part.text if isinstance(part, TextPart) else image for part in message.content)


def has_image(prompt: ChatPrompt) -> bool:
    return any(
        isinstance(part, ImagePart)
        for message in prompt.messages
        if not isinstance(message.content, str)
        for part in message.content
    )
