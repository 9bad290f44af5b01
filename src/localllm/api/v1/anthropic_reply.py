"""Engine events → an Anthropic message, streamed or whole. Thinking, text and tool calls are blocks, one open at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator

import msgspec
from msgspec import Struct, structs

from localllm.api.errors import anthropic_error
from localllm.core.anthropic import (
    AnthropicUsage,
    MessageReply,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from localllm.core.errors import LocalLLMError
from localllm.core.generation import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    TextDelta,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)

Block = TextBlock | ThinkingBlock | ToolUseBlock

_encode = msgspec.json.Encoder().encode


class MessageBuilder:
    """What has been said so far: blocks, of which the last one is open and grows."""

    def __init__(self, message_id: str, model: str) -> None:
        self._empty = MessageReply(
            id=message_id,
            model=model,
            usage=AnthropicUsage(input_tokens=0, cache_read_input_tokens=0, output_tokens=0),
        )
        self._blocks: list[tuple[Block, list[str]]] = []
        self._finished = Finished(FinishReason.STOP)

    @property
    def index(self) -> int:
        """Of the block that is open."""
        return len(self._blocks) - 1

    @property
    def open(self) -> Block | None:
        return self._blocks[-1][0] if self._blocks else None

    def started(self, event: Started) -> MessageReply:
        cached = event.cached_tokens or 0
        usage = AnthropicUsage(
            input_tokens=max(0, (event.prompt_tokens or 0) - cached),
            cache_read_input_tokens=cached,
            output_tokens=0,
        )
        self._empty = structs.replace(self._empty, usage=usage)
        return self._empty

    def begin(self, block: Block) -> None:
        self._blocks.append((block, []))

    def add(self, text: str) -> None:
        self._blocks[-1][1].append(text)

    def finished(self, event: Finished) -> None:
        self._finished = event

    def used(self, usage: Usage) -> None:
        self._empty = structs.replace(
            self._empty,
            usage=AnthropicUsage(
                input_tokens=max(0, usage.prompt_tokens - usage.cached_tokens),
                cache_read_input_tokens=usage.cached_tokens,
                output_tokens=usage.completion_tokens,
            ),
        )

    def message(self) -> MessageReply:
        """The whole message."""
        return structs.replace(
            self._empty,
            content=tuple(_whole(block, "".join(texts)) for block, texts in self._blocks),
            stop_reason=_stop_reason(self._finished),
            stop_sequence=self._finished.stop_sequence,
        )


class MessageChunks:
    """The stream's frames: message_start, blocks with their deltas, message_delta, message_stop."""

    def __init__(self, builder: MessageBuilder) -> None:
        self._builder = builder

    def __call__(self, event: Event) -> bytes:
        return b"".join(self._frames(event))

    def ending(self) -> bytes:
        message = self._builder.message()
        delta = {"stop_reason": message.stop_reason, "stop_sequence": message.stop_sequence}
        return _frame("message_delta", {"delta": delta, "usage": message.usage}) + _frame("message_stop", {})

    def failing(self, error: LocalLLMError) -> bytes:
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(anthropic_error(error))

    def _frames(self, event: Event) -> Iterator[bytes]:
        builder = self._builder
        match event:
            case Started():
                yield _frame("message_start", {"message": builder.started(event)})
            case TextDelta(text):
                yield from self._need(TextBlock, TextBlock(""))
                yield self._delta({"type": "text_delta", "text": text})
                builder.add(text)
            case ReasoningDelta(text):
                yield from self._need(ThinkingBlock, ThinkingBlock(thinking=""))
                yield self._delta({"type": "thinking_delta", "thinking": text})
                builder.add(text)
            case ToolCallStart(id=call_id, name=name):
                yield from self._begin(ToolUseBlock(id=call_id, name=name))
            case ToolCallDelta(arguments=arguments):
                yield self._delta({"type": "input_json_delta", "partial_json": arguments})
                builder.add(arguments)
            case Finished():
                builder.finished(event)
                yield from self._close()
            case Usage():
                builder.used(event)
            case _:
                pass

    def _need(self, kind: type[Block], block: Block) -> Iterator[bytes]:
        if not isinstance(self._builder.open, kind):
            yield from self._begin(block)

    def _begin(self, block: Block) -> Iterator[bytes]:
        yield from self._close()
        self._builder.begin(block)
        yield _frame("content_block_start", {"index": self._builder.index, "content_block": block})

    def _close(self) -> Iterator[bytes]:
        block = self._builder.open
        if isinstance(block, ThinkingBlock):
            yield self._delta({"type": "signature_delta", "signature": ""})
        if block is not None:
            yield _frame("content_block_stop", {"index": self._builder.index})

    def _delta(self, delta: dict[str, object]) -> bytes:
        return _frame("content_block_delta", {"index": self._builder.index, "delta": delta})


class MessageCollector:
    """Takes every event and then makes the whole message."""

    def __init__(self, builder: MessageBuilder) -> None:
        self._builder = builder
        self._chunks = MessageChunks(builder)

    def __call__(self, event: Event) -> None:
        self._chunks(event)

    def reply(self) -> Struct:
        return self._builder.message()


def _whole(block: Block, text: str) -> Block:
    match block:
        case TextBlock():
            return TextBlock(text)
        case ThinkingBlock():
            return ThinkingBlock(thinking=text)
        case ToolUseBlock():
            return structs.replace(block, input=_arguments(text))


def _arguments(text: str) -> dict[str, object]:
    """A call's arguments as an object; those that were cut off, or are none, under a name that says so."""
    try:
        value = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {"incomplete_json": text}
    return value if isinstance(value, dict) else {"value": value}


def _stop_reason(finished: Finished) -> StopReason:
    match finished.reason:
        case FinishReason.STOP:
            return "end_turn" if finished.stop_sequence is None else "stop_sequence"
        case FinishReason.LENGTH:
            return "max_tokens"
        case FinishReason.TOOL_CALLS:
            return "tool_use"
        case FinishReason.CONTENT_FILTER:
            return "refusal"


def _frame(kind: str, fields: dict[str, object]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), _encode({"type": kind, **fields}))
