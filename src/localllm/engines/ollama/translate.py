"""From our request to Ollama's and from its lines to our events. Pure.

What Ollama has no word for is refused here, by the name of the field; nothing is left out in silence.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence

from msgspec import Struct

from localllm.core.errors import BadRequest, Unsupported
from localllm.core.generation import (
    ChatPrompt,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Grammar,
    ImagePart,
    JsonObject,
    JsonSchema,
    Message,
    Prompt,
    ReasoningDelta,
    Sampling,
    Started,
    TextDelta,
    TextPart,
    TextPrompt,
    TokenLogprob,
    TokenPrompt,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from localllm.engines.llama_server.tool_text import (
    ToolTextReader,
    describe_tools,
    new_call_id,
    tell_results_as_text,
    tool_call_schema,
)
from localllm.engines.ollama.wire import Called, Line, TokenChance

_OPTIONS = {
    "temperature": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "typical_p": "typical_p",
    "repeat_penalty": "repeat_penalty",
    "repeat_last_n": "repeat_last_n",
    "presence_penalty": "presence_penalty",
    "frequency_penalty": "frequency_penalty",
    "seed": "seed",
}
_NEUTRAL: dict[str, object] = {
    "top_n_sigma": -1.0,
    "dry_multiplier": 0.0,
    "xtc_probability": 0.0,
    "mirostat": 0,
}
"""Samplers that Ollama lacks, with the value that means they are off (then their other fields mean nothing)."""


class Call(Struct, frozen=True, kw_only=True):
    """One HTTP request. ``tool_names`` is set when calls must be found in the text: the template knows no tools, or
    the answer was made to be a call."""

    path: str
    body: dict[str, object]
    tool_names: tuple[str, ...] = ()
    one_call: bool = False


def translate(
    request: GenerationRequest,
    *,
    model: str,
    options: dict[str, object],
    stop: Sequence[str],
    features: frozenset[str],
) -> Call:
    """``options`` are those the model was loaded with (they must not change); ``features`` what Ollama says it can.

    Raises:
        Unsupported, BadRequest: the request asks for what Ollama cannot do; ``param`` names the field.
    """
    _refuse_unknown(request)
    fields: dict[str, object] = {
        "model": model,
        "stream": True,
        "keep_alive": -1,
        "truncate": False,
        "shift": False,
        "options": options | _options(request, stop),
    }
    if request.logprobs is not None:
        fields |= {"logprobs": True, "top_logprobs": request.logprobs}
    if (form := _format(request)) is not None:
        fields["format"] = form
    prompt = request.prompt
    if isinstance(prompt, TextPrompt):
        return Call(path="/api/generate", body=fields | {"prompt": prompt.text, "raw": True})
    assert isinstance(prompt, ChatPrompt)
    in_text = _offers_tools(prompt) and (prompt.tool_choice == "required" or "tools" not in features)
    return Call(
        path="/api/chat",
        body=fields | _chat(prompt, features),
        tool_names=tuple(tool.name for tool in prompt.tools) if in_text else (),
        one_call=not prompt.parallel_tool_calls,
    )


def has_images(prompt: Prompt) -> bool:
    return isinstance(prompt, ChatPrompt) and any(
        isinstance(part, ImagePart)
        for message in prompt.messages
        if not isinstance(message.content, str)
        for part in message.content
    )


def _refuse_unknown(request: GenerationRequest) -> None:
    if isinstance(request.prompt, TokenPrompt):
        raise Unsupported("Ollama takes text, not token ids.", param="prompt")
    if isinstance(request.prompt, ChatPrompt) and request.prompt.continue_final_message:
        raise Unsupported("Ollama does not continue a message that was begun.", param="messages")
    if request.n != 1:
        raise Unsupported("Ollama gives one answer per request.", param="n")
    if request.prediction is not None:
        raise Unsupported("Ollama has no predicted outputs.", param="prediction")
    if request.sampling.logit_bias:
        raise Unsupported("Ollama has no logit_bias.", param="logit_bias")


def _offers_tools(prompt: ChatPrompt) -> bool:
    return bool(prompt.tools) and prompt.tool_choice != "none"


def _options(request: GenerationRequest, stop: Sequence[str]) -> dict[str, object]:
    options: dict[str, object] = {}
    for name in Sampling.__struct_fields__:
        value = getattr(request.sampling, name)
        if value is None or name == "logit_bias":
            continue
        if name in _OPTIONS:
            options[_OPTIONS[name]] = value
        elif name in _NEUTRAL and value != _NEUTRAL[name]:
            raise Unsupported(f"Ollama has no {name}.", param=name)
    if request.max_tokens is not None:
        options["num_predict"] = request.max_tokens
    strings = [*stop, *request.stop]
    if strings:
        options["stop"] = strings
    return options


def _format(request: GenerationRequest) -> object | None:
    """Ollama has no tool_choice: a required call is had by giving the answer the form of one."""
    prompt = request.prompt
    if isinstance(prompt, ChatPrompt) and prompt.tools and prompt.tool_choice == "required":
        return tool_call_schema(prompt.tools)
    match request.constraint:
        case None:
            return None
        case JsonObject():
            return {"type": "object"}
        case JsonSchema(schema):
            return schema
        case Grammar():
            raise Unsupported("Ollama takes JSON schemas, not grammars.", param="grammar")


def _chat(prompt: ChatPrompt, features: frozenset[str]) -> dict[str, object]:
    if prompt.template_arguments:
        raise Unsupported("Ollama's templates take no arguments.", param="chat_template_kwargs")
    messages: Sequence[Message] = prompt.messages
    fields: dict[str, object] = {}
    if "tools" not in features:
        messages = tell_results_as_text(messages)
        if _offers_tools(prompt):
            messages = describe_tools(messages, prompt.tools, required=prompt.tool_choice == "required")
    elif _offers_tools(prompt):
        fields["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
            }
            for t in prompt.tools
        ]
    fields["messages"] = [_message(m, messages) for m in messages]
    if "thinking" in features:
        fields["think"] = _think(prompt)
    return fields


def _think(prompt: ChatPrompt) -> bool | str:
    """How much to think. Not while a call is required: its form would be forced on the thoughts as well."""
    effort = prompt.reasoning_effort
    if prompt.tools and prompt.tool_choice == "required":
        return False
    if effort is None or effort == "none":
        return effort is None
    return "low" if effort == "minimal" else effort


def _message(message: Message, all_messages: Sequence[Message]) -> dict[str, object]:
    fields: dict[str, object] = {"role": message.role}
    if isinstance(message.content, str):
        fields["content"] = message.content
    else:
        fields["content"] = "\n".join(p.text for p in message.content if isinstance(p, TextPart))
        images = [base64.b64encode(p.data).decode() for p in message.content if isinstance(p, ImagePart)]
        if images:
            fields["images"] = images
    if message.reasoning:
        fields["thinking"] = message.reasoning
    if message.tool_calls:
        fields["tool_calls"] = [
            {"function": {"name": c.name, "arguments": _arguments(c.arguments)}} for c in message.tool_calls
        ]
    if message.role == "tool":
        fields["tool_name"] = _called_name(message, all_messages)
    return fields


def _arguments(text: str) -> object:
    try:
        value: object = json.loads(text or "{}")
    except ValueError as error:
        raise BadRequest("A tool call's arguments are not JSON.", param="messages") from error
    return value


def _called_name(answer: Message, messages: Sequence[Message]) -> str:
    """Ollama links a result to its call by the function's name; OpenAI by an id that only the call carries."""
    for message in messages:
        for call in message.tool_calls:
            if call.id == answer.tool_call_id:
                return call.name
    return answer.name or ""


class Reader:
    """Turns the lines of one answer into events, in the contract's order; ``ended`` once the last line was read."""

    def __init__(self, call: Call, *, context_length: int, wants_logprobs: bool) -> None:
        self._context_length = context_length
        self._text = ToolTextReader(call.tool_names, 0) if call.tool_names else None
        self._most_calls = 1 if call.one_call else None
        self._wants_logprobs = wants_logprobs
        self._started = False
        self._calls = 0
        self._reasoned = 0
        self.ended = False
        self.completion_tokens = 0
        self.queue_ms: float | None = None

    def read(self, line: Line) -> Iterator[Event]:
        if not self._started:
            self._started = True
            yield Started(None, None, self._context_length)
        message = line.message
        text = message.content if message else line.response
        thought = message.thinking if message else line.thinking
        if thought:
            self._reasoned += 1
            yield ReasoningDelta(thought)
        if text and self._text is not None:
            yield from self._text.feed(text)
        elif text or (line.logprobs and self._wants_logprobs):
            yield TextDelta(text, logprobs=_chances(line.logprobs) if self._wants_logprobs else ())
        for call in message.tool_calls if message else ():
            if self._calls != self._most_calls:
                yield from self._call(call)
        if line.done:
            self.ended = True
            yield from self._end(line)

    def _call(self, call: Called) -> Iterator[Event]:
        index, self._calls = self._calls, self._calls + 1
        yield ToolCallStart(index, new_call_id(), call.function.name)
        yield ToolCallDelta(index, json.dumps(call.function.arguments, ensure_ascii=False))

    def _end(self, line: Line) -> Iterator[Event]:
        reason = FinishReason.LENGTH if line.done_reason == "length" else FinishReason.STOP
        called = self._calls > 0
        if self._text is not None:
            called = called or self._text.called
            yield from self._text.close()
        if called and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        self.completion_tokens = max(line.eval_count or 0, 0)
        yield Finished(reason)
        yield Usage(
            prompt_tokens=max(line.prompt_eval_count or 0, 0),
            cached_tokens=0,
            completion_tokens=self.completion_tokens,
            reasoning_tokens=self._reasoned,
            queue_ms=self.queue_ms,
            prefill_ms=_milliseconds(line.prompt_eval_duration),
            decode_ms=_milliseconds(line.eval_duration),
        )


def _milliseconds(nanoseconds: int) -> float | None:
    """Of an answer without a token Ollama reports a time before its beginning."""
    return nanoseconds / 1e6 if nanoseconds >= 0 else None


def _chances(found: Sequence[TokenChance] | None) -> tuple[TokenLogprob, ...]:
    return tuple(
        TokenLogprob(
            c.token,
            c.logprob,
            bytes(c.bytes) if c.bytes is not None else c.token.encode(),
            top=_chances(c.top_logprobs),
        )
        for c in found or ()
    )
