"""From our request to Ollama's and from its lines to our events. Pure.

What Ollama has no word for is refused here, by the name of the field; nothing is left out in silence.
"""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Iterator, Sequence

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
    ReasoningDelta,
    Sampling,
    Started,
    TextDelta,
    TextPart,
    TextPrompt,
    TokenLogprob,
    Tool,
    ToolCallDelta,
    ToolCallStart,
    Usage,
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


def endpoint(request: GenerationRequest) -> str:
    return "/api/chat" if isinstance(request.prompt, ChatPrompt) else "/api/generate"


def body(
    request: GenerationRequest,
    *,
    model: str,
    options: dict[str, object],
    stop: Sequence[str],
    thinks: bool,
) -> dict[str, object]:
    """The JSON body of one generation. ``options`` are those the model was loaded with; they must not change.

    Raises:
        Unsupported, BadRequest: the request asks for what Ollama cannot do; ``param`` names the field.
    """
    if request.n != 1:
        raise Unsupported("Ollama gives one answer per request.", param="n")
    if request.prediction is not None:
        raise Unsupported("Ollama has no predicted outputs.", param="prediction")
    if request.sampling.logit_bias:
        raise Unsupported("Ollama has no logit_bias.", param="logit_bias")
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
    if isinstance(prompt, ChatPrompt):
        return fields | _chat(prompt, thinks)
    if isinstance(prompt, TextPrompt):
        return fields | {"prompt": prompt.text, "raw": True}
    raise Unsupported("Ollama takes text, not token ids.", param="prompt")


def forces_call(request: GenerationRequest) -> bool:
    """Whether the answer must be a tool call: Ollama has no tool_choice, so its format is made to be one."""
    prompt = request.prompt
    return isinstance(prompt, ChatPrompt) and prompt.tool_choice == "required" and bool(prompt.tools)


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
    constraint = request.constraint
    if forces_call(request):
        assert isinstance(request.prompt, ChatPrompt)
        return _call_schema(request.prompt.tools)
    match constraint:
        case None:
            return None
        case JsonObject():
            return "json"
        case JsonSchema():
            return constraint.schema
        case Grammar():
            raise Unsupported("Ollama takes JSON schemas, not grammars.", param="grammar")


def _call_schema(tools: Sequence[Tool]) -> dict[str, object]:
    calls: list[dict[str, object]] = [
        {
            "type": "object",
            "properties": {"name": {"const": t.name}, "arguments": t.parameters or {"type": "object"}},
            "required": ["name", "arguments"],
        }
        for t in tools
    ]
    return calls[0] if len(calls) == 1 else {"anyOf": calls}


def _chat(prompt: ChatPrompt, thinks: bool) -> dict[str, object]:
    if prompt.template_arguments:
        raise Unsupported("Ollama's templates take no arguments.", param="chat_template_kwargs")
    fields: dict[str, object] = {"messages": [_message(m, prompt.messages) for m in prompt.messages]}
    if prompt.tools and prompt.tool_choice != "none":
        fields["tools"] = [
            {
                "type": "function",
                "function": {"name": t.name, "description": t.description, "parameters": t.parameters},
            }
            for t in prompt.tools
        ]
    if thinks:
        effort = prompt.reasoning_effort
        fields["think"] = (
            effort != "none" if effort in (None, "none") else "low" if effort == "minimal" else effort
        )
    return fields


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
    """Turns the lines of one answer into events, in the contract's order."""

    def __init__(self, *, context_length: int, wants_call: bool, wants_logprobs: bool) -> None:
        self._context_length = context_length
        self._wants_call = wants_call
        self._wants_logprobs = wants_logprobs
        self._started = False
        self._calls = 0
        self._call_text = ""
        self._reasoned = 0
        self.ended = False

    def read(self, line: Line) -> Iterator[Event]:
        """The events of one line; ``ended`` is set by the last one."""
        if not self._started:
            self._started = True
            yield Started(None, None, self._context_length)
        message = line.message
        text = message.content if message else line.response
        thought = message.thinking if message else line.thinking
        if thought:
            self._reasoned += 1
            yield ReasoningDelta(thought)
        if text and self._wants_call:
            self._call_text += text
        elif text:
            yield TextDelta(text, logprobs=_chances(line.logprobs) if self._wants_logprobs else ())
        for call in message.tool_calls if message else ():
            yield from self._call(call)
        if line.done:
            self.ended = True
            yield from self._end(line)

    def _call(self, call: Called) -> Iterator[Event]:
        index, self._calls = self._calls, self._calls + 1
        yield ToolCallStart(index, f"call_{secrets.token_hex(12)}", call.function.name)
        yield ToolCallDelta(index, json.dumps(call.function.arguments, ensure_ascii=False))

    def _end(self, line: Line) -> Iterator[Event]:
        reason = FinishReason.LENGTH if line.done_reason == "length" else FinishReason.STOP
        if self._wants_call and self._call_text:
            yield from self._forced_call(reason)
        if self._calls and reason is FinishReason.STOP:
            reason = FinishReason.TOOL_CALLS
        yield Finished(reason)
        yield Usage(
            prompt_tokens=max(line.prompt_eval_count or 0, 0),
            cached_tokens=0,
            completion_tokens=max(line.eval_count or 0, 0),
            reasoning_tokens=self._reasoned,
            queue_ms=None,
            prefill_ms=line.prompt_eval_duration / 1e6,
            decode_ms=line.eval_duration / 1e6,
        )

    def _forced_call(self, reason: FinishReason) -> Iterator[Event]:
        """The answer was made to be a call. Cut off by its length it is no JSON: what there is is passed on as it is."""
        try:
            value = json.loads(self._call_text)
        except ValueError:
            if reason is not FinishReason.LENGTH:
                raise
            yield TextDelta(self._call_text)
            return
        yield ToolCallStart(0, f"call_{secrets.token_hex(12)}", str(value["name"]))
        yield ToolCallDelta(0, json.dumps(value["arguments"], ensure_ascii=False))
        self._calls = 1


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
