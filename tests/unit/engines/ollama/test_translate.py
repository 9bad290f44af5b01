"""There and back without a server: what is said to Ollama, what is refused, and what its tool calls become."""

from __future__ import annotations

import json
from typing import Any

import pytest

from localllm.core.errors import Unsupported
from localllm.core.generation import (
    ChatPrompt,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Grammar,
    ImagePart,
    JsonSchema,
    Message,
    Sampling,
    TextDelta,
    TextPart,
    TextPrompt,
    TokenPrompt,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
)
from localllm.engines.ollama.translate import Call, Reader, translate
from localllm.engines.ollama.wire import line_decoder
from tests.support.scripted_ollama import DONE, said

CLOCK = Tool("clock", "The time", {"type": "object", "properties": {}})
USER = Message(role="user", content="Hi")


def call(features: frozenset[str] = frozenset({"tools"}), **fields: Any) -> Call:
    prompt = fields.pop("prompt", None) or ChatPrompt(
        messages=fields.pop("messages", (USER,)), **_chat(fields)
    )
    request = GenerationRequest(request_id="r", prompt=prompt, **fields)
    return translate(request, model="m", options={"num_ctx": 64}, stop=("END",), features=features)


def _chat(fields: dict[str, Any]) -> dict[str, Any]:
    names = (
        "tools",
        "tool_choice",
        "reasoning_effort",
        "continue_final_message",
        "template_arguments",
        "parallel_tool_calls",
    )
    return {name: fields.pop(name) for name in names if name in fields}


def messages_of(one: Call) -> list[dict[str, object]]:
    messages = one.body["messages"]
    assert isinstance(messages, list)
    return messages


def read(one: Call, *lines: dict[str, Any]) -> list[Event]:
    reader = Reader(one, context_length=64, wants_logprobs=False)
    return [e for line in lines for e in reader.read(line_decoder.decode(json.dumps(line)))]


def test_sampling_and_stops_join_the_options_of_the_load() -> None:
    body = call(sampling=Sampling(temperature=0.5, seed=7), max_tokens=9, stop=("x",)).body
    assert body["options"] == {
        "num_ctx": 64,
        "temperature": 0.5,
        "seed": 7,
        "num_predict": 9,
        "stop": ["END", "x"],
    }


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"prediction": "x"}, "prediction"),
        ({"sampling": Sampling(logit_bias={1: 2.0})}, "logit_bias"),
        ({"sampling": Sampling(mirostat=2)}, "mirostat"),
        ({"sampling": Sampling(xtc_probability=0.5)}, "xtc_probability"),
        ({"constraint": Grammar("root ::= x")}, "grammar"),
        ({"prompt": TokenPrompt((1, 2))}, "prompt"),
        ({"continue_final_message": True}, "messages"),
        ({"template_arguments": {"a": 1}}, "chat_template_kwargs"),
    ],
)
def test_what_ollama_has_no_word_for_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(Unsupported) as caught:
        call(**fields)
    assert caught.value.param == param


def test_samplers_that_are_switched_off_are_no_wish() -> None:
    assert "mirostat" not in str(call(sampling=Sampling(mirostat=0, xtc_probability=0.0)).body)


def test_a_text_goes_raw_past_the_template() -> None:
    one = call(prompt=TextPrompt("Once"))
    assert one.path == "/api/generate" and one.body["raw"] is True and one.body["prompt"] == "Once"


def test_a_schema_is_the_format() -> None:
    assert call(constraint=JsonSchema({"type": "null"})).body["format"] == {"type": "null"}


def test_results_name_the_function_that_was_called() -> None:
    asked = Message(role="assistant", tool_calls=(ToolCall("c1", "clock", '{"zone": "UTC"}'),))
    told = Message(role="tool", tool_call_id="c1", content="noon")
    _, second, third = messages_of(call(messages=(USER, asked, told)))
    assert second["tool_calls"] == [{"function": {"name": "clock", "arguments": {"zone": "UTC"}}}]
    assert third["tool_name"] == "clock"


def test_images_are_base64_beside_the_text() -> None:
    picture = Message(role="user", content=(TextPart("What?"), ImagePart(b"abc", "image/png")))
    (message,) = messages_of(call(messages=(picture,)))
    assert message == {"role": "user", "content": "What?", "images": ["YWJj"]}


def test_native_calls_become_events() -> None:
    one = call(tools=(CLOCK,))
    assert one.body["tools"] and one.tool_names == ()
    line = said("", tool_calls=[{"function": {"name": "clock", "arguments": {"zone": "UTC"}}}] * 2)
    events = read(one, line, dict(DONE))
    starts = [e for e in events if isinstance(e, ToolCallStart)]
    assert [s.index for s in starts] == [0, 1] and len({s.id for s in starts}) == 2
    assert [json.loads(e.arguments) for e in events if isinstance(e, ToolCallDelta)] == [{"zone": "UTC"}] * 2
    assert [e.reason for e in events if isinstance(e, Finished)] == [FinishReason.TOOL_CALLS]
    alone = read(call(tools=(CLOCK,), parallel_tool_calls=False), line, dict(DONE))
    assert sum(isinstance(e, ToolCallStart) for e in alone) == 1


@pytest.mark.parametrize("features", [frozenset({"tools"}), frozenset[str]()])
def test_a_required_call_is_forced_by_its_form_and_found_in_the_text(features: frozenset[str]) -> None:
    one = call(features, tools=(CLOCK,), tool_choice="required")
    assert one.body["format"] is not None and one.tool_names == ("clock",)
    events = read(one, said('{"name": "clock", "argum'), said('ents": {}}'), dict(DONE))
    assert [e.name for e in events if isinstance(e, ToolCallStart)] == ["clock"]
    assert not any(isinstance(e, TextDelta) for e in events)


def test_a_model_whose_template_knows_no_tools_is_told_of_them_in_words() -> None:
    one = call(frozenset(), tools=(CLOCK,))
    assert "tools" not in one.body and "clock" in str(one.body["messages"])
    events = read(one, said("It is noon."), dict(DONE))
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["It is noon."]


@pytest.mark.parametrize(
    ("effort", "think"), [(None, True), ("none", False), ("minimal", "low"), ("high", "high")]
)
def test_how_much_to_think(effort: str | None, think: object) -> None:
    assert call(frozenset({"thinking"}), reasoning_effort=effort).body["think"] == think
    assert "think" not in call(frozenset(), reasoning_effort=effort).body
