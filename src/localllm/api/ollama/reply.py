"""Engine events → Ollama's answers: one JSON object a line, a tool call whole in one, figures in the last."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
from msgspec import UNSET, Struct, structs

from localllm.api.errors import ollama_error
from localllm.core.errors import LocalLLMError
from localllm.core.generation import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from localllm.core.ollama_api import (
    OllamaFunctionCall,
    OllamaPiece,
    OllamaReplyMessage,
    OllamaToolCall,
)


class OllamaPieces:
    """Call it with each event; it yields the pieces. ``chat``: text goes into ``message``, else into ``response``."""

    def __init__(self, model: str, *, chat: bool, received: float) -> None:
        self._model = model
        self._chat = chat
        self._received = received
        self._call: tuple[ToolCallStart, list[str]] | None = None
        self._reason = FinishReason.STOP
        self._usage: Usage | None = None

    def __call__(self, event: Event) -> Iterator[OllamaPiece]:
        match event:
            case TextDelta(text):
                yield self.piece(text=text)
            case ReasoningDelta(text):
                yield self.piece(thinking=text)
            case ToolCallStart():
                yield from self._called()
                self._call = (event, [])
            case ToolCallDelta(arguments=arguments) if self._call is not None:
                self._call[1].append(arguments)
            case Finished(reason):
                self._reason = reason
                yield from self._called()
            case Usage():
                self._usage = event
            case _:
                pass

    def piece(
        self, text: str = "", thinking: str | None = None, calls: list[OllamaToolCall] | None = None
    ) -> OllamaPiece:
        created_at = datetime.now(UTC).isoformat().replace("+00:00", "Z")
        said = UNSET if thinking is None else thinking
        if not self._chat:
            return OllamaPiece(model=self._model, created_at=created_at, response=text, thinking=said)
        message = OllamaReplyMessage(content=text, thinking=said, tool_calls=calls or UNSET)
        return OllamaPiece(model=self._model, created_at=created_at, message=message)

    def last(self, piece: OllamaPiece) -> OllamaPiece:
        """This piece as the last one, with the figures."""
        usage = self._usage
        return structs.replace(
            piece,
            done=True,
            done_reason="length" if self._reason is FinishReason.LENGTH else "stop",
            total_duration=int((time.monotonic() - self._received) * 1e9),
            load_duration=0,
            prompt_eval_count=usage.prompt_tokens if usage else 0,
            prompt_eval_duration=_nanoseconds(usage.prefill_ms if usage else None),
            eval_count=usage.completion_tokens if usage else 0,
            eval_duration=_nanoseconds(usage.decode_ms if usage else None),
        )

    def _called(self) -> Iterator[OllamaPiece]:
        if self._call is None:
            return
        start, texts = self._call
        self._call = None
        function = OllamaFunctionCall(name=start.name, arguments=_arguments("".join(texts)))
        yield self.piece(calls=[OllamaToolCall(function=function)])


class OllamaChunks:
    def __init__(self, pieces: OllamaPieces) -> None:
        self._pieces = pieces

    def __call__(self, event: Event) -> bytes:
        return b"".join(_line(piece) for piece in self._pieces(event))

    def ending(self) -> bytes:
        return _line(self._pieces.last(self._pieces.piece()))

    def failing(self, error: LocalLLMError) -> bytes:
        return _line(ollama_error(error))


class OllamaCollector:
    """The pieces as one."""

    def __init__(self, pieces: OllamaPieces) -> None:
        self._pieces = pieces
        self._text: list[str] = []
        self._thinking: list[str] = []
        self._calls: list[OllamaToolCall] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, TextDelta):
            self._text.append(event.text)
        elif isinstance(event, ReasoningDelta):
            self._thinking.append(event.text)
        for piece in self._pieces(event):
            if piece.message is not UNSET and piece.message.tool_calls is not UNSET:
                self._calls.extend(piece.message.tool_calls)

    def reply(self) -> Struct:
        thinking = "".join(self._thinking) or None
        return self._pieces.last(self._pieces.piece("".join(self._text), thinking, self._calls))


def _line(value: Struct) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def _arguments(text: str) -> dict[str, object]:
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"incomplete_json": text}
    return value if isinstance(value, dict) else {"value": value}


def _nanoseconds(milliseconds: float | None) -> int:
    return int((milliseconds or 0) * 1e6)
