"""Engine events → a plain completion, streamed or whole."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from localllm.api.sse import DONE
from localllm.api.v1.reply import ReplyHead, openai_failure
from localllm.api.v1.usage import usage_reply
from localllm.core.errors import LocalLLMError
from localllm.core.generation import Event, Finished, ReasoningDelta, TextDelta, TokenLogprob, Usage
from localllm.core.openai import CompletionReply, TextChoice, TextLogprobs

_encode = msgspec.json.Encoder().encode
_TAIL = b',"logprobs":null,"finish_reason":null}]'


class CompletionChunks:
    """Call it with each event; it returns the frame to send. ``echoes[i]`` is put before choice i's text."""

    def __init__(self, head: ReplyHead, echoes: Sequence[str] = ()) -> None:
        self.head = head
        common = {"id": head.id, "object": "text_completion", "created": head.created, "model": head.model}
        self._common = b"data: " + _encode(common)[:-1]
        self._end = b',"usage":null}\n\n' if head.include_usage else b"}\n\n"
        self._starts = [
            self._common + b',"choices":[{"index":%d,"text":' % index for index in range(head.choices)
        ]
        self._tail = _TAIL + self._end
        self._usages: list[Usage] = []
        self._echoes = dict(enumerate(echoes))
        self._offsets = [0] * head.choices

    def __call__(self, event: Event) -> bytes:
        match event:
            case TextDelta(text, choice, logprobs):
                if self._echoes:
                    text = self._echoes.pop(choice, "") + text
                if logprobs:
                    return self._with_logprobs(text, choice, logprobs)
                return self._starts[choice] + _encode(text) + self._tail
            case ReasoningDelta(text, choice):
                return self._starts[choice] + _encode(text) + self._tail
            case Finished(reason, choice):
                last = _encode(self._echoes.pop(choice, ""))
                ending = b'%b,"logprobs":null,"finish_reason":"%b"}]' % (last, reason.value.encode())
                return self._starts[choice] + ending + self._end
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

    def _with_logprobs(self, text: str, choice: int, tokens: Sequence[TokenLogprob]) -> bytes:
        figures = text_logprobs(tokens, self._offsets[choice])
        self._offsets[choice] += sum(len(token.token) for token in tokens)
        return b'%b%b,"logprobs":%b,"finish_reason":null}]%b' % (
            self._starts[choice],
            _encode(text),
            _encode(figures),
            self._end,
        )


class _Choice:
    def __init__(self, echo: str) -> None:
        self.text = [echo] if echo else []
        self.logprobs: list[TokenLogprob] = []
        self.reason = "stop"


class CompletionCollector:
    """Takes every event of the generations of one request and then makes the whole reply."""

    def __init__(self, head: ReplyHead, echoes: Sequence[str] = ()) -> None:
        self.head = head
        self._choices = [
            _Choice(echoes[index] if index < len(echoes) else "") for index in range(head.choices)
        ]
        self._usages: list[Usage] = []

    def __call__(self, event: Event) -> None:
        match event:
            case TextDelta(text, choice, logprobs):
                self._choices[choice].text.append(text)
                self._choices[choice].logprobs.extend(logprobs)
            case ReasoningDelta(text, choice):
                self._choices[choice].text.append(text)
            case Finished(reason, choice):
                self._choices[choice].reason = reason.value
            case Usage():
                self._usages.append(event)
            case _:
                pass

    def reply(self) -> CompletionReply:
        head = self.head
        return CompletionReply(
            id=head.id,
            created=head.created,
            model=head.model,
            choices=[
                TextChoice(
                    index=index,
                    text="".join(choice.text),
                    logprobs=text_logprobs(choice.logprobs, 0) if head.logprobs else None,
                    finish_reason=choice.reason,
                )
                for index, choice in enumerate(self._choices)
            ],
            usage=usage_reply(self._usages),
        )


def text_logprobs(tokens: Sequence[TokenLogprob], offset: int) -> TextLogprobs:
    """OpenAI's older form: parallel lists, and where each token begins in the text (from ``offset`` on)."""
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.token)
    return TextLogprobs(
        tokens=[token.token for token in tokens],
        token_logprobs=[token.logprob for token in tokens],
        top_logprobs=[{top.token: top.logprob for top in token.top} for token in tokens],
        text_offset=offsets,
    )
