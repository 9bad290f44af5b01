"""A ``GenerationRequest`` in OpenAI's words, for one server's dialect of them. What it has no word for is refused. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec
from msgspec import Struct

from localllm.core.errors import Unsupported
from localllm.core.generation import (
    ChatPrompt,
    Constraint,
    GenerationRequest,
    Grammar,
    JsonObject,
    JsonSchema,
    Message,
    Sampling,
    TextPrompt,
)
from localllm.engines.base import Capability
from localllm.engines.llama_server.tool_text import describe_tools, tell_results_as_text, tool_call_schema
from localllm.engines.openai_messages import message_fields, tool_fields
from localllm.engines.remote.probe import Abilities
from localllm.engines.remote.target import MaxTokensField

CHAT_PATH = "/chat/completions"
TEXT_PATH = "/completions"
_OPENAI_SAMPLING = frozenset({"temperature", "top_p", "presence_penalty", "frequency_penalty", "seed"})
_RENAMED = {
    "vllm": {"repeat_penalty": "repetition_penalty"},
    "sglang": {"repeat_penalty": "repetition_penalty"},
}


class Call(Struct, frozen=True, kw_only=True):
    """One HTTP request. ``tool_names`` is set when calls must be found in the text, as the template knows no tools."""

    path: str
    body: dict[str, object]
    tool_names: tuple[str, ...] = ()


def translate(
    request: GenerationRequest,
    abilities: Abilities,
    *,
    model: str,
    max_tokens_field: MaxTokensField = "max_tokens",
) -> Call:
    """Raises Unsupported with the field's name."""
    body: dict[str, object] = {
        "model": model,
        "stream": True,
        "stream_options": {"include_usage": True},
        **_sampling(request.sampling, abilities),
    }
    if request.n > 1:
        if Capability.MULTIPLE_CHOICES not in abilities.capabilities:
            raise Unsupported("This remote gives one answer per request.", param="n")
        body["n"] = request.n
    if not request.cache_prompt and abilities.server == "llamacpp":
        body["cache_prompt"] = False
    if request.stop:
        body["stop"] = list(request.stop)
    prompt = request.prompt
    if isinstance(prompt, ChatPrompt):
        if request.max_tokens is not None:
            body[max_tokens_field] = request.max_tokens
        return _chat(request, prompt, body, abilities)
    if request.prediction is not None:
        raise Unsupported("A text completion takes no prediction.", param="prediction")
    if request.constraint is not None:
        body |= _text_constraint(request.constraint, abilities)
    if request.max_tokens is not None:
        body["max_tokens"] = request.max_tokens
    if request.logprobs is not None:
        body["logprobs"] = max(1, request.logprobs)  # 0 means none to llama.cpp
    body["prompt"] = prompt.text if isinstance(prompt, TextPrompt) else list(prompt.tokens)
    return Call(path=TEXT_PATH, body=body)


def _chat(
    request: GenerationRequest, prompt: ChatPrompt, body: dict[str, object], abilities: Abilities
) -> Call:
    if prompt.continue_final_message:
        raise Unsupported("OpenAI's API does not continue a message that was begun.", param="messages")
    if request.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": max(1, request.logprobs)}
    if request.prediction is not None:
        body["prediction"] = {"type": "content", "content": request.prediction}
    if prompt.reasoning_effort is not None:
        body["reasoning_effort"] = prompt.reasoning_effort
    if prompt.template_arguments:
        if abilities.server == "openai":
            raise Unsupported("OpenAI's API has no template arguments.", param="chat_template_kwargs")
        body["chat_template_kwargs"] = prompt.template_arguments
    if request.constraint is not None:
        body["response_format"] = _response_format(request.constraint)
    offered = prompt.tools if prompt.tool_choice != "none" else ()
    messages: Sequence[Message] = prompt.messages
    names: tuple[str, ...] = ()
    if not abilities.tools:
        messages = tell_results_as_text(messages)
        if offered:
            required = prompt.tool_choice == "required"
            messages = describe_tools(messages, offered, required=required)
            names = tuple(tool.name for tool in offered)
            if required:
                body["response_format"] = _schema_format(tool_call_schema(offered), "call")
    elif offered:
        body |= {"tools": [tool_fields(tool) for tool in offered], "tool_choice": prompt.tool_choice}
        if not prompt.parallel_tool_calls:
            body["parallel_tool_calls"] = False
    body["messages"] = [message_fields(message) for message in messages]
    return Call(path=CHAT_PATH, body=body, tool_names=names)


def _response_format(constraint: Constraint) -> dict[str, object]:
    match constraint:
        case JsonObject():
            return {"type": "json_object"}
        case JsonSchema(schema, name, strict):
            return _schema_format(schema, name, strict=strict)
        case Grammar():
            raise Unsupported("OpenAI's API takes JSON schemas, not grammars.", param="grammar")
        case _:
            assert_never(constraint)


def _text_constraint(constraint: Constraint, abilities: Abilities) -> dict[str, object]:
    if abilities.server != "llamacpp":
        raise Unsupported("OpenAI's API constrains chats, not text completions.", param="response_format")
    match constraint:
        case JsonObject():
            return {"json_schema": {"type": "object"}}
        case JsonSchema(schema):
            return {"json_schema": schema}
        case Grammar():
            raise Unsupported("OpenAI's API takes JSON schemas, not grammars.", param="grammar")
        case _:
            assert_never(constraint)


def _schema_format(schema: dict[str, object], name: str, *, strict: bool = True) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": name, "strict": strict, "schema": schema}}


def _sampling(sampling: Sampling, abilities: Abilities) -> dict[str, object]:
    fields: dict[str, object] = {}
    renamed = _RENAMED.get(abilities.server, {})
    for name, value in msgspec.structs.asdict(sampling).items():
        if value is None or name == "logit_bias":
            continue
        if name not in _OPENAI_SAMPLING | abilities.sampling:
            raise Unsupported(f"The remote has no {name}.", param=name)
        fields[renamed.get(name, name)] = value
    if sampling.logit_bias:
        fields["logit_bias"] = {str(token): bias for token, bias in sampling.logit_bias.items()}
    return fields
