from __future__ import annotations

from typing import Any

import pytest

from localllm.core.errors import Unsupported
from localllm.core.generation import (
    ChatPrompt,
    GenerationRequest,
    Grammar,
    ImagePart,
    JsonObject,
    JsonSchema,
    Message,
    Sampling,
    TextPart,
    TextPrompt,
    TokenPrompt,
    Tool,
    ToolCall,
)
from localllm.engines.llama_server.translate import CHAT_PATH, TEXT_PATH, Call, has_images, translate
from localllm.engines.llama_server.wire import TemplateAbilities

KNOWS_TOOLS = TemplateAbilities(supports_tools=True, supports_tool_calls=True)
KNOWS_NONE = TemplateAbilities()
USER = Message(role="user", content="Hi")
TOOL = Tool("f", "does it", {"type": "object", "properties": {}})


def call(prompt: Any, abilities: TemplateAbilities = KNOWS_TOOLS, **fields: Any) -> Call:
    request = GenerationRequest(request_id="1", prompt=prompt, **fields)
    return translate(request, abilities, count_each=False)


def test_texts_and_tokens_go_to_completion() -> None:
    assert call(TextPrompt("Once")).path == TEXT_PATH
    assert call(TextPrompt("Once")).body["prompt"] == "Once"
    assert call(TokenPrompt((1, 2))).body["prompt"] == [1, 2]


def test_what_is_not_asked_is_left_to_the_model_but_a_seed_is_fresh() -> None:
    body = call(TextPrompt("Once")).body
    assert body["seed"] == -1
    assert body["n_predict"] == -1
    assert "temperature" not in body
    assert "logit_bias" not in body
    assert "stop" not in body


def test_every_sampling_field_is_passed_on() -> None:
    values: dict[str, Any] = {
        name: 1 for name in Sampling.__struct_fields__ if name not in {"logit_bias", "seed", "mirostat"}
    }
    body = call(
        TextPrompt("Once"), sampling=Sampling(**values, mirostat=2, seed=5, logit_bias={7: -3.0})
    ).body
    assert body["logit_bias"] == [[7, -3.0]]
    assert (body["seed"], body["mirostat"]) == (5, 2)
    assert all(body[name] == 1 for name in values)


def test_a_chat_keeps_calls_results_reasoning_and_pictures() -> None:
    messages = (
        Message(role="user", content=(TextPart("What?"), ImagePart(b"\x01", "image/png"))),
        Message(role="assistant", reasoning="hm", tool_calls=(ToolCall("c1", "f", "{}"),)),
        Message(role="tool", tool_call_id="c1", content="done"),
    )
    asked = call(ChatPrompt(messages=messages, tools=(TOOL,)))
    assert asked.path == CHAT_PATH
    sent: Any = asked.body["messages"]
    assert sent[0]["content"][1]["image_url"]["url"] == "data:image/png;base64,AQ=="
    assert sent[1]["reasoning_content"] == "hm"
    assert sent[1]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}
    assert sent[2]["tool_call_id"] == "c1"
    assert asked.body["tool_choice"] == "auto"
    assert asked.tool_names == ()
    assert has_images(ChatPrompt(messages=messages))


def test_no_tools_are_shown_when_none_may_be_called() -> None:
    body = call(ChatPrompt(messages=(USER,), tools=(TOOL,), tool_choice="none")).body
    assert "tools" not in body


def test_a_template_without_tools_gets_them_in_text_and_a_required_one_by_grammar() -> None:
    asked = call(ChatPrompt(messages=(USER,), tools=(TOOL,), tool_choice="required"), KNOWS_NONE)
    assert asked.tool_names == ("f",)
    assert "tools" not in asked.body
    form: Any = asked.body["response_format"]
    assert form["json_schema"]["schema"]["properties"]["name"] == {"const": "f"}
    free = call(ChatPrompt(messages=(USER,), tools=(TOOL,)), KNOWS_NONE)
    assert "response_format" not in free.body
    with pytest.raises(Unsupported) as caught:
        call(ChatPrompt(messages=(USER,), tools=(TOOL,)), KNOWS_NONE, constraint=JsonObject())
    assert caught.value.param == "response_format"


def test_constraints_are_said_in_each_endpoints_way() -> None:
    schema: dict[str, object] = {"type": "object", "properties": {"a": {"type": "string"}}}
    assert call(TextPrompt("x"), constraint=JsonObject()).body["json_schema"] == {"type": "object"}
    assert call(TextPrompt("x"), constraint=JsonSchema(schema)).body["json_schema"] == schema
    chat: Any = call(ChatPrompt(messages=(USER,)), constraint=JsonSchema(schema)).body["response_format"]
    assert chat["json_schema"]["schema"] == schema
    for prompt in (TextPrompt("x"), ChatPrompt(messages=(USER,))):
        assert call(prompt, constraint=Grammar("root ::= x")).body["grammar"] == "root ::= x"


def test_an_answer_is_continued_only_when_asked() -> None:
    assert "continue_final_message" not in call(ChatPrompt(messages=(USER,))).body
    body = call(ChatPrompt(messages=(USER,), continue_final_message=True)).body
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


def test_reasoning_effort_reaches_the_template() -> None:
    arguments: Any = call(ChatPrompt(messages=(USER,), reasoning_effort="none")).body["chat_template_kwargs"]
    assert arguments == {"reasoning_effort": "none", "enable_thinking": False}


def test_at_least_one_alternative_is_asked_for_so_that_logprobs_come_at_all() -> None:
    assert call(TextPrompt("x"), logprobs=0).body["n_probs"] == 1
    assert call(ChatPrompt(messages=(USER,)), logprobs=0).body["top_logprobs"] == 1
    assert call(TextPrompt("x"), logprobs=5).body["n_probs"] == 5


def test_a_prediction_is_refused() -> None:
    with pytest.raises(Unsupported) as caught:
        call(ChatPrompt(messages=(USER,)), prediction="text")
    assert caught.value.param == "prediction"
