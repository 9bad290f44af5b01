"""A ``GenerationRequest`` in llama-server's own words. Everything a request can ask is either said here or refused.

Chat prompts go to ``/v1/chat/completions``, because the server's templates and parsers for tools and reasoning are
there; texts and tokens go to ``/completion``, which also says which stop string ended the answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

import msgspec

from localllm.core.errors import Unsupported
from localllm.core.generation import (
    ChatPrompt,
    Constraint,
    GenerationRequest,
    Grammar,
    ImagePart,
    JsonObject,
    JsonSchema,
    Prompt,
    Sampling,
    TextPrompt,
)
from localllm.engines.llama_server.tool_text import describe_tools, tell_results_as_text, tool_call_schema
from localllm.engines.llama_server.wire import TemplateAbilities
from localllm.engines.openai_messages import message_fields, tool_fields

CHAT_PATH = "/v1/chat/completions"
TEXT_PATH = "/completion"
_ANY_OBJECT: dict[str, object] = {"type": "object"}


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One HTTP request. ``tool_names`` is set when tool calls must be found in the text, as the template knows no tools."""

    path: str
    body: dict[str, object]
    tool_names: tuple[str, ...] = ()


def translate(request: GenerationRequest, abilities: TemplateAbilities, *, count_each: bool) -> Call:
    """``count_each`` wants the tokens so far with every chunk. Stop strings stay here: see ``Answer``.

    Raises:
        Unsupported: something is asked that llama-server cannot do.
    """
    if request.prediction is not None:
        raise Unsupported(
            "llama_server cannot use a predicted output.",
            hint="Load the model with the llama_cpp engine, or leave out prediction.",
            param="prediction",
        )
    body: dict[str, object] = {
        "stream": True,
        "return_progress": True,
        "cache_prompt": request.cache_prompt,
        "n_predict": -1 if request.max_tokens is None else request.max_tokens,
        "timings_per_token": count_each,
        **_sampling(request.sampling),
    }
    if isinstance(request.prompt, ChatPrompt):
        return _chat_call(request, request.prompt, body, abilities)
    body |= _text_prompt(request.prompt)
    if request.logprobs is not None:
        body["n_probs"] = max(1, request.logprobs)
    if request.constraint is not None:
        body |= _constraint(request.constraint)
    return Call(path=TEXT_PATH, body=body)


def _text_prompt(prompt: Prompt) -> dict[str, object]:
    return {"prompt": prompt.text if isinstance(prompt, TextPrompt) else list(_tokens(prompt))}


def _tokens(prompt: Prompt) -> Sequence[int]:
    assert not isinstance(prompt, ChatPrompt | TextPrompt)
    return prompt.tokens


# ---------------------------------------------------------------- chat


def _chat_call(
    request: GenerationRequest, prompt: ChatPrompt, body: dict[str, object], abilities: TemplateAbilities
) -> Call:
    body |= chat_body(prompt, abilities)
    body["stream_options"] = {"include_usage": True}
    body["reasoning_format"] = "deepseek"
    if request.logprobs is not None:
        body |= {"logprobs": True, "top_logprobs": max(1, request.logprobs)}
    if not _tools_in_text(prompt, abilities):
        if request.constraint is not None:
            body |= _chat_constraint(request.constraint)
        return Call(path=CHAT_PATH, body=body)
    if prompt.tool_choice == "required":
        body["response_format"] = _schema_format(tool_call_schema(prompt.tools))
    elif request.constraint is not None:
        raise Unsupported(
            "This model's chat template knows no tools; it cannot choose between a tool and a given form of answer.",
            hint='Set tool_choice to "required" or "none", or leave out the response format.',
            param="response_format",
        )
    return Call(path=CHAT_PATH, body=body, tool_names=tuple(tool.name for tool in prompt.tools))


def chat_body(prompt: ChatPrompt, abilities: TemplateAbilities) -> dict[str, object]:
    """The part of a chat request that decides how the prompt reads; also what counting its tokens needs."""
    messages = prompt.messages
    if not abilities.supports_tool_calls:
        messages = tell_results_as_text(messages)
    body: dict[str, object] = {}
    if _tools_in_text(prompt, abilities):
        messages = describe_tools(messages, prompt.tools, required=prompt.tool_choice == "required")
    elif prompt.tools and prompt.tool_choice != "none":
        body["tools"] = [tool_fields(tool) for tool in prompt.tools]
        body["tool_choice"] = prompt.tool_choice
        body["parallel_tool_calls"] = prompt.parallel_tool_calls
    body["messages"] = [message_fields(message) for message in messages]
    if prompt.continue_final_message:
        body |= {"continue_final_message": True, "add_generation_prompt": False}
    arguments = dict(prompt.template_arguments)
    if prompt.reasoning_effort is not None:
        arguments.setdefault("reasoning_effort", prompt.reasoning_effort)
        arguments.setdefault("enable_thinking", prompt.reasoning_effort != "none")
    if arguments:
        body["chat_template_kwargs"] = arguments
    return body


def has_images(prompt: Prompt) -> bool:
    return isinstance(prompt, ChatPrompt) and any(
        isinstance(part, ImagePart)
        for message in prompt.messages
        if not isinstance(message.content, str)
        for part in message.content
    )


def _tools_in_text(prompt: ChatPrompt, abilities: TemplateAbilities) -> bool:
    return bool(prompt.tools) and prompt.tool_choice != "none" and not abilities.supports_tools


# ---------------------------------------------------------------- constraints and sampling


def _chat_constraint(constraint: Constraint) -> dict[str, object]:
    match constraint:
        case JsonObject():
            return {"response_format": _schema_format(_ANY_OBJECT)}
        case JsonSchema(schema):
            return {"response_format": _schema_format(schema)}
        case Grammar(gbnf):
            return {"grammar": gbnf}
        case _:
            assert_never(constraint)


def _constraint(constraint: Constraint) -> dict[str, object]:
    match constraint:
        case JsonObject():
            return {"json_schema": _ANY_OBJECT}
        case JsonSchema(schema):
            return {"json_schema": schema}
        case Grammar(gbnf):
            return {"grammar": gbnf}
        case _:
            assert_never(constraint)


def _schema_format(schema: dict[str, object]) -> dict[str, object]:
    return {"type": "json_schema", "json_schema": {"name": "response", "strict": True, "schema": schema}}


def _sampling(sampling: Sampling) -> dict[str, object]:
    """Our names are llama.cpp's; None is left out, so that the model's own default stands."""
    fields = {name: value for name, value in msgspec.structs.asdict(sampling).items() if value is not None}
    biases = fields.pop("logit_bias")
    if biases:
        fields["logit_bias"] = [[token, bias] for token, bias in biases.items()]
    fields.setdefault("seed", -1)
    return fields
