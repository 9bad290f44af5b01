"""Personal data never reaches the model: placeholders go in, and what comes out is put back before the client sees it.

Masked are the texts of messages, reasoning, tool-call arguments and results, raw prompts and embedding inputs. Tools and
schemas are not: they are the developer's, and the grammar takes them literally. What cannot be read (images, token ids) is
refused rather than let past.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing
from typing import ClassVar

from msgspec import structs

from localllm.core.errors import Unsupported
from localllm.core.generation import (
    ChatPrompt,
    GenerationRequest,
    Message,
    Prompt,
    TextPart,
    TextPrompt,
    ToolCallDelta,
)
from localllm.engines.base import EmbeddingResult
from localllm.service.gateway.lanes import Delta, Lanes, TextFilter
from localllm.service.gateway.pii import Masker
from localllm.service.gateway.policy import Events, Exchange, Proceed, ProceedEmbed, Transform
from localllm.service.gateway.rules import Rules
from localllm.service.pipeline import Call, EmbedCall

_Mask = Callable[[str], str]


class Masking(Transform):
    name: ClassVar[str] = "masking"

    def __init__(self) -> None:
        self._values = 0
        self._requests = 0

    def wants(self, rules: Rules) -> bool:
        return rules.mask_pii

    def figures(self) -> dict[str, int]:
        return {"requests": self._requests, "values_masked": self._values}

    async def around(self, exchange: Exchange, proceed: Proceed) -> Events:
        masker = Masker()
        call = exchange.call
        if isinstance(call, Call):
            exchange.call = structs.replace(call, request=masked_request(call.request, masker))
        self._count(exchange, masker)

        def restorer(first: Delta) -> TextFilter:
            return masker.restorer(in_json=isinstance(first, ToolCallDelta))

        restored = Lanes(restorer)
        async with aclosing(proceed()) as events:
            async for event in events:
                for out in restored(event):
                    yield out

    async def around_embedding(self, exchange: Exchange, proceed: ProceedEmbed) -> EmbeddingResult:
        call = exchange.call
        if isinstance(call, EmbedCall):
            masker = Masker()
            texts = [_readable(each, "input") for each in call.inputs]
            for text in texts:
                masker.reserve(text)
            exchange.call = structs.replace(call, inputs=[masker.mask(text) for text in texts])
            self._count(exchange, masker)
        return await proceed()

    def _count(self, exchange: Exchange, masker: Masker) -> None:
        exchange.masked = masker.counts
        self._requests += 1
        self._values += sum(masker.counts.values())


def masked_request(request: GenerationRequest, masker: Masker) -> GenerationRequest:
    """The request as the model may see it. Raises Unsupported for what cannot be read."""
    for text in _texts(request.prompt):
        masker.reserve(text)
    prediction = request.prediction and masker.mask(request.prediction)
    return structs.replace(request, prompt=_masked_prompt(request.prompt, masker.mask), prediction=prediction)


def _texts(prompt: Prompt) -> Iterator[str]:
    if isinstance(prompt, TextPrompt):
        yield prompt.text
    if not isinstance(prompt, ChatPrompt):
        return
    for message in prompt.messages:
        if isinstance(message.content, str):
            yield message.content
        else:
            yield from (part.text for part in message.content if isinstance(part, TextPart))
        yield message.reasoning or ""
        yield from (call.arguments for call in message.tool_calls)


def _masked_prompt(prompt: Prompt, mask: _Mask) -> Prompt:
    if isinstance(prompt, TextPrompt):
        return TextPrompt(mask(prompt.text))
    if isinstance(prompt, ChatPrompt):
        return structs.replace(
            prompt, messages=tuple(_masked_message(each, mask) for each in prompt.messages)
        )
    raise _unreadable("token ids", "prompt")


def _masked_message(message: Message, mask: _Mask) -> Message:
    content = message.content
    if not isinstance(content, str):
        if not all(isinstance(part, TextPart) for part in content):
            raise _unreadable("images", "messages")
        content = tuple(TextPart(mask(part.text)) for part in content if isinstance(part, TextPart))
    else:
        content = mask(content)
    return structs.replace(
        message,
        content=content,
        reasoning=message.reasoning and mask(message.reasoning),
        tool_calls=tuple(
            structs.replace(call, arguments=_masked_json(call.arguments, mask)) for call in message.tool_calls
        ),
    )


def _masked_json(text: str, mask: _Mask) -> str:
    """Strings are masked as what they mean: in ``"\\nme@example.org"`` the address does not begin with an n."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return mask(text)
    masked = _masked_value(value, mask)
    return text if masked == value else json.dumps(masked, ensure_ascii=False)


def _masked_value(value: object, mask: _Mask) -> object:
    if isinstance(value, str):
        return mask(value)
    if isinstance(value, list):
        return [_masked_value(each, mask) for each in value]
    if isinstance(value, dict):
        return {mask(name): _masked_value(each, mask) for name, each in value.items()}
    if isinstance(value, int | float) and not isinstance(value, bool):
        text = json.dumps(value)
        return value if (masked := mask(text)) == text else masked
    return value


def _readable(value: str | Sequence[int], param: str) -> str:
    if not isinstance(value, str):
        raise _unreadable("token ids", param)
    return value


def _unreadable(what: str, param: str) -> Unsupported:
    return Unsupported(
        f"Personal data is masked for this key, and {what} cannot be looked into.",
        hint="Send text, or use a key without masking.",
        param=param,
    )
