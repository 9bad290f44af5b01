"""Engine events → a response, streamed or whole: one builder knows the output items, and says what changed.

The order of a stream: ``created``, ``in_progress``; for each item ``output_item.added``, its part, deltas, ``done``s; then
``completed``, ``incomplete`` (the answer was cut, at its limit or by a rule) or ``failed``. Every event is numbered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
from msgspec import Struct, structs

from localllm.api.errors import error_object
from localllm.api.v1.chat_reply import chat_logprobs
from localllm.api.v1.usage import served_tier
from localllm.core.errors import LocalLLMError
from localllm.core.generation import (
    Event,
    Finished,
    FinishReason,
    ReasoningDelta,
    Started,
    TextDelta,
    Tier,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from localllm.core.openai import CalledFunction, CalledTool, WireMessage
from localllm.core.responses import (
    IncompleteDetails,
    InputTokensDetails,
    OutputFunctionCall,
    OutputItem,
    OutputMessage,
    OutputReasoning,
    OutputText,
    OutputTokensDetails,
    ReasoningText,
    ResponseError,
    ResponseReply,
    ResponseUsage,
    Status,
)

OnDone = Callable[[ResponseReply], None]
Said = tuple[str, dict[str, object]]

_encode = msgspec.json.Encoder().encode
_INCOMPLETE: dict[FinishReason, IncompleteDetails] = {
    FinishReason.LENGTH: IncompleteDetails("max_output_tokens"),
    FinishReason.CONTENT_FILTER: IncompleteDetails("content_filter"),
}


class _Item:
    """One output item while it grows. ``call`` is set for a function call."""

    def __init__(self, item_id: str, kind: type[Event], call: ToolCallStart | None = None) -> None:
        self.id = item_id
        self.kind = kind
        self.call = call
        self.texts: list[str] = []
        self.logprobs: list[TokenLogprob] = []

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def part(self, text: str) -> OutputText | ReasoningText:
        if self.kind is ReasoningDelta:
            return ReasoningText(text=text)
        return OutputText(text=text, logprobs=tuple(chat_logprobs(self.logprobs).content))

    def item(self, status: Status, *, empty: bool = False) -> OutputItem:
        if self.call is not None:
            return OutputFunctionCall(
                id=self.id, status=status, call_id=self.call.id, name=self.call.name, arguments=self.text
            )
        part = self.part(self.text)
        if isinstance(part, ReasoningText):
            return OutputReasoning(id=self.id, status=status, content=() if empty else (part,))
        return OutputMessage(id=self.id, status=status, content=() if empty else (part,))


class ResponseBuilder:
    """Call it with each event; it yields the stream's events as (type, fields). ``frame`` is what was asked."""

    def __init__(self, frame: ResponseReply, tier: Tier) -> None:
        self._frame = frame
        self._tier = tier
        self._done: list[OutputItem] = []
        self._open: _Item | None = None
        self._reason = FinishReason.STOP
        self._usage: Usage | None = None

    def __call__(self, event: Event) -> Iterator[Said]:
        match event:
            case TextDelta() | ReasoningDelta():
                yield from self._text(event)
            case ToolCallStart():
                yield from self._close("completed")
                yield from self._begin(ToolCallStart, event)
            case ToolCallDelta(arguments=arguments) if self._open is not None:
                self._open.texts.append(arguments)
                yield "response.function_call_arguments.delta", {**self._where(), "delta": arguments}
            case Started():
                yield "response.created", {"response": self._frame}
                yield "response.in_progress", {"response": self._frame}
            case Finished(reason):
                self._reason = reason
                if self._open is None and not self._done:
                    yield from self._begin(TextDelta)
                yield from self._close("incomplete" if reason in _INCOMPLETE else "completed")
            case Usage():
                self._usage = event
            case _:
                pass

    def reply(self) -> ResponseReply:
        """The whole response."""
        incomplete = _INCOMPLETE.get(self._reason)
        return structs.replace(
            self._frame,
            status="incomplete" if incomplete else "completed",
            incomplete_details=incomplete,
            output=tuple(self._done),
            usage=_usage(self._usage) if self._usage else None,
            service_tier=served_tier([self._usage] if self._usage else [], self._tier),
        )

    def failed(self, error: LocalLLMError) -> ResponseReply:
        said = error_object(error, hint_in_message=True)
        return structs.replace(
            self._frame,
            status="failed",
            output=tuple(self._done),
            error=ResponseError(error.code, str(said["message"])),
        )

    def _text(self, event: TextDelta | ReasoningDelta) -> Iterator[Said]:
        if self._open is None or self._open.kind is not type(event):
            yield from self._close("completed")
            yield from self._begin(type(event))
        item = self._open
        assert item is not None, "an item was just begun"
        item.texts.append(event.text)
        fields: dict[str, object] = {**self._where(), "content_index": 0, "delta": event.text}
        if isinstance(event, ReasoningDelta):
            yield "response.reasoning_text.delta", fields
            return
        item.logprobs.extend(event.logprobs)
        yield "response.output_text.delta", {**fields, "logprobs": chat_logprobs(event.logprobs).content}

    def _begin(self, kind: type[Event], call: ToolCallStart | None = None) -> Iterator[Said]:
        prefix = "fc" if call else "rs" if kind is ReasoningDelta else "msg"
        item = self._open = _Item(
            f"{prefix}_{self._frame.id.removeprefix('resp_')}_{len(self._done)}", kind, call
        )
        added: dict[str, object] = {
            "output_index": len(self._done),
            "item": item.item("in_progress", empty=True),
        }
        yield "response.output_item.added", added
        if call is None:
            part = {**self._where(), "content_index": 0, "part": item.part("")}
            yield "response.content_part.added", part

    def _close(self, status: Status) -> Iterator[Said]:
        item = self._open
        if item is None:
            return
        where = self._where()
        if item.call is not None:
            done = {**where, "name": item.call.name, "arguments": item.text}
            yield "response.function_call_arguments.done", done
        else:
            part = item.part(item.text)
            said: dict[str, object] = {**where, "content_index": 0, "text": part.text}
            if isinstance(part, OutputText):
                yield "response.output_text.done", {**said, "logprobs": part.logprobs}
            else:
                yield "response.reasoning_text.done", said
            yield "response.content_part.done", {**where, "content_index": 0, "part": part}
        whole = item.item(status)
        yield "response.output_item.done", {"output_index": len(self._done), "item": whole}
        self._done.append(whole)
        self._open = None

    def _where(self) -> dict[str, object]:
        return {"item_id": self._open.id if self._open else "", "output_index": len(self._done)}


class ResponseChunks:
    """The builder's events as numbered frames. ``on_done`` gets the response when it is whole."""

    def __init__(self, builder: ResponseBuilder, on_done: OnDone) -> None:
        self._builder = builder
        self._on_done = on_done
        self._number = 0

    def __call__(self, event: Event) -> bytes:
        return b"".join(self._frame(kind, fields) for kind, fields in self._builder(event))

    def ending(self) -> bytes:
        reply = self._builder.reply()
        self._on_done(reply)
        return self._frame(f"response.{reply.status}", {"response": reply})

    def failing(self, error: LocalLLMError) -> bytes:
        return self._frame("response.failed", {"response": self._builder.failed(error)})

    def _frame(self, kind: str, fields: dict[str, object]) -> bytes:
        body = _encode({"type": kind, "sequence_number": self._number, **fields})
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), body)


class ResponseCollector:
    """Takes every event and then makes the whole response."""

    def __init__(self, builder: ResponseBuilder, on_done: OnDone) -> None:
        self._builder = builder
        self._on_done = on_done

    def __call__(self, event: Event) -> None:
        for _ in self._builder(event):
            pass

    def reply(self) -> Struct:
        reply = self._builder.reply()
        self._on_done(reply)
        return reply


def as_messages(output: tuple[OutputItem, ...]) -> tuple[WireMessage, ...]:
    """A response's output as the turn of the conversation that it is."""
    reasoning = [part.text for item in output if isinstance(item, OutputReasoning) for part in item.content]
    texts = [part.text for item in output if isinstance(item, OutputMessage) for part in item.content]
    calls = [
        CalledTool(id=item.call_id, function=CalledFunction(item.name, item.arguments))
        for item in output
        if isinstance(item, OutputFunctionCall)
    ]
    turn = WireMessage(
        role="assistant",
        content="\n".join(texts),
        reasoning="\n".join(reasoning) or None,
        tool_calls=calls or None,
    )
    return (turn,)


def _usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=InputTokensDetails(usage.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=OutputTokensDetails(usage.reasoning_tokens),
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
    )
