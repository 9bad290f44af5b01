"""Engine events → a chat completion, streamed or whole.

The streamed form is on the path of every token, so what does not change between two chunks is encoded once per
choice; a token then costs one JSON string and one concatenation.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from localllm.api.sse import DONE
from localllm.api.v1.reply import ReplyHead, openai_failure
from localllm.api.v1.usage import served_tier, usage_reply
from localllm.core.errors import LocalLLMError
from localllm.core.generation import (
    Event,
    Finished,
    ReasoningDelta,
    Started,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from localllm.core.openai import (
    Alternative,
    CalledFunction,
    CalledTool,
    ChatChoice,
    ChatLogprobs,
    ChatReply,
    ChatReplyMessage,
    TokenReply,
)

_encode = msgspec.json.Encoder().encode
_NO_LOGPROBS = b',"logprobs":null'


class ChatChunks:
    """Call it with each event; it returns the frames to send, which may be none (b""). ``ending`` gives the last."""

    def __init__(self, head: ReplyHead) -> None:
        self.head = head
        common = {
            "id": head.id,
            "object": "chat.completion.chunk",
            "created": head.created,
            "model": head.model,
            "service_tier": head.tier.value,
        }
        self._common = b"data: " + _encode(common)[:-1]
        self._usage_null = b',"usage":null}\n\n' if head.include_usage else b"}\n\n"
        self._starts = [
            self._common + b',"choices":[{"index":%d,"delta":' % index for index in range(head.choices)
        ]
        self._tail = _NO_LOGPROBS + b',"finish_reason":null}]' + self._usage_null
        self._text = [start + b'{"content":' for start in self._starts]
        self._text_tail = b"}" + self._tail
        self._usages: list[Usage] = []

    def __call__(self, event: Event) -> bytes:
        if type(event) is TextDelta:
            if event.logprobs:
                return self._with_logprobs(event)
            return self._text[event.choice] + _encode(event.text) + self._text_tail
        match event:
            case ReasoningDelta(text, choice):
                return self._delta(choice, {self.head.reasoning_field: text})
            case ToolCallDelta(index, arguments, choice):
                return self._delta(
                    choice, {"tool_calls": [{"index": index, "function": {"arguments": arguments}}]}
                )
            case ToolCallStart(index, call_id, name, choice):
                function = {"name": name, "arguments": ""}
                call = {"index": index, "id": call_id, "type": "function", "function": function}
                return self._delta(choice, {"tool_calls": [call]})
            case Started():
                first = {"role": "assistant", "content": ""}
                return b"".join(self._delta(choice, first) for choice in range(self.head.choices))
            case Finished(reason, choice):
                ending = b'{}%b,"finish_reason":"%b"}]' % (_NO_LOGPROBS, reason.value.encode())
                return self._starts[choice] + ending + self._usage_null
            case Usage():
                self._usages.append(event)
                return b""
            case _:
                return b""

    def ending(self) -> bytes:
        """The chunk with the usage, if it was asked for, and [DONE]."""
        if not self.head.include_usage:
            return DONE
        usage = _encode(usage_reply(self._usages))
        return self._common + b',"choices":[],"usage":' + usage + b"}\n\n" + DONE

    def failing(self, error: LocalLLMError) -> bytes:
        return openai_failure(error)

    def _delta(self, choice: int, delta: object) -> bytes:
        return self._starts[choice] + _encode(delta) + self._tail

    def _with_logprobs(self, event: TextDelta) -> bytes:
        return b'%b{"content":%b},"logprobs":%b,"finish_reason":null}]%b' % (
            self._starts[event.choice],
            _encode(event.text),
            _encode(chat_logprobs(event.logprobs)),
            self._usage_null,
        )


class _Choice:
    """What one choice has said so far."""

    def __init__(self) -> None:
        self.text: list[str] = []
        self.reasoning: list[str] = []
        self.calls: list[tuple[ToolCallStart, list[str]]] = []
        self.logprobs: list[TokenLogprob] = []
        self.reason = "stop"


class ChatCollector:
    """Takes every event of a generation and then makes the whole reply."""

    def __init__(self, head: ReplyHead) -> None:
        self.head = head
        self._choices = [_Choice() for _ in range(head.choices)]
        self._usage: list[Usage] = []

    def __call__(self, event: Event) -> None:
        match event:
            case TextDelta(text, choice, logprobs):
                self._choices[choice].text.append(text)
                self._choices[choice].logprobs.extend(logprobs)
            case ReasoningDelta(text, choice):
                self._choices[choice].reasoning.append(text)
            case ToolCallStart(choice=choice):
                self._choices[choice].calls.append((event, []))
            case ToolCallDelta(_, arguments, choice):
                self._choices[choice].calls[-1][1].append(arguments)
            case Finished(reason, choice):
                self._choices[choice].reason = reason.value
            case Usage():
                self._usage.append(event)
            case _:
                pass

    def reply(self) -> ChatReply:
        head = self.head
        return ChatReply(
            id=head.id,
            created=head.created,
            model=head.model,
            choices=[self._reply_choice(index, choice) for index, choice in enumerate(self._choices)],
            usage=usage_reply(self._usage),
            service_tier=served_tier(self._usage, head.tier),
        )

    def _reply_choice(self, index: int, choice: _Choice) -> ChatChoice:
        text = "".join(choice.text)
        calls = [
            CalledTool(id=start.id, function=CalledFunction(start.name, "".join(arguments)))
            for start, arguments in choice.calls
        ]
        message = ChatReplyMessage(content=text if text or not calls else None)
        if calls:
            message = msgspec.structs.replace(message, tool_calls=calls)
        if choice.reasoning:
            message = msgspec.structs.replace(
                message, **{self.head.reasoning_field: "".join(choice.reasoning)}
            )
        return ChatChoice(
            index=index,
            message=message,
            logprobs=chat_logprobs(choice.logprobs) if self.head.logprobs else None,
            finish_reason=choice.reason,
        )


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> ChatLogprobs:
    return ChatLogprobs([_token(token) for token in tokens])


def _token(token: TokenLogprob) -> TokenReply:
    return TokenReply(
        token=token.token,
        logprob=token.logprob,
        bytes=list(token.token_bytes),
        top_logprobs=[Alternative(top.token, top.logprob, list(top.token_bytes)) for top in token.top],
    )
