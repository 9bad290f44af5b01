"""Chat completions from request to reply, whole and streamed."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from localllm.core.errors import GenerationFailed
from localllm.core.generation import ChatPrompt, FinishReason, JsonObject, JsonSchema, Message
from localllm.engines.base import Capability
from tests.support.script import CallTool, Crash, End, Fail, Prefill, Raw, Reasoning, Start, Text, Wait
from tests.support.scripted_engine import DEFAULT_CAPABILITIES, ScriptedEngine
from tests.unit.api.conftest import MODEL, PortUnderTest, events_of, until

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
CLOCK = {"type": "function", "function": {"name": "clock"}}


async def test_a_whole_reply_has_openais_shape(port: PortUnderTest) -> None:
    port.engine.enqueue(Text("Hello there"))
    response = await port.chat("hi")
    body = response.json()
    assert response.status_code == 200
    assert body["object"] == "chat.completion"
    assert body["id"].startswith("chatcmpl-")
    assert body["model"] == MODEL
    assert body["choices"] == [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "Hello there", "refusal": None},
            "logprobs": None,
            "finish_reason": "stop",
        }
    ]
    usage = body["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["completion_tokens"] == 2
    assert response.headers["x-localllm-context"] == f"{usage['prompt_tokens']}/512"
    assert response.headers["x-request-id"].startswith("req_")


async def test_cached_tokens_are_reported(port: PortUnderTest) -> None:
    await port.chat("the very same prompt")
    again = (await port.chat("the very same prompt")).json()["usage"]
    assert 0 < again["prompt_tokens_details"]["cached_tokens"] < again["prompt_tokens"]


async def test_a_stream_begins_with_the_role_once_and_ends_empty(port: PortUnderTest) -> None:
    port.engine.enqueue(Text("one two"))
    *chunks, done = await port.events()
    assert done == "[DONE]"
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "one"}, {"content": " two"}, {}]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "stop"]
    assert len({(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in chunks}) == 1
    assert all("usage" not in chunk for chunk in chunks)


async def test_usage_is_one_chunk_without_choices_and_only_if_asked(port: PortUnderTest) -> None:
    *chunks, usage, done = await port.events(stream_options={"include_usage": True})
    assert done == "[DONE]"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] > 0
    assert all(chunk["usage"] is None and chunk["choices"] for chunk in chunks)


async def test_n_choices_each_have_their_role_and_end(port: PortUnderTest) -> None:
    *chunks, usage, _ = await port.events(n=3, stream_options={"include_usage": True})
    for index in range(3):
        own = [chunk["choices"][0] for chunk in chunks if chunk["choices"][0]["index"] == index]
        assert own[0]["delta"] == {"role": "assistant", "content": ""}
        assert own[-1]["delta"] == {} and own[-1]["finish_reason"] == "stop"
        assert sum("role" in choice["delta"] for choice in own) == 1
    assert usage["usage"]["completion_tokens"] == 3 * 3
    whole = (await port.chat(n=3)).json()
    assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2]


async def test_reasoning_is_apart_from_the_answer(port: PortUnderTest) -> None:
    port.engine.when("think", Reasoning("hm hm"), Text("Yes"))
    message = (await port.chat("think")).json()["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("hm hm", "Yes")
    deltas = [chunk["choices"][0]["delta"] for chunk in (await port.events("think"))[:-1]]
    assert {"reasoning_content": "hm"} in deltas


async def test_tool_call_deltas(port: PortUnderTest) -> None:
    port.engine.when("sky", CallTool("weather", '{"city": "Oslo"}'), CallTool("clock", "{}"))
    chunks = (await port.events("sky", tools=[WEATHER, CLOCK]))[:-1]
    calls = [call for chunk in chunks for call in chunk["choices"][0]["delta"].get("tool_calls", ())]
    firsts = [call for call in calls if "id" in call]
    assert [(call["index"], call["type"], call["function"]) for call in firsts] == [
        (0, "function", {"name": "weather", "arguments": ""}),
        (1, "function", {"name": "clock", "arguments": ""}),
    ]
    assert len({call["id"] for call in firsts}) == 2
    later = [call for call in calls if "id" not in call]
    assert all(
        call.keys() == {"index", "function"} and call["function"].keys() == {"arguments"} for call in later
    )
    assert (
        "".join(call["function"]["arguments"] for call in later if call["index"] == 0) == '{"city": "Oslo"}'
    )
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_a_whole_reply_with_tool_calls_has_null_content(port: PortUnderTest) -> None:
    port.engine.enqueue(CallTool("weather", '{"city": "Oslo"}'))
    choice = (await port.chat(tools=[WEATHER])).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["content"] is None
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "weather", "arguments": '{"city": "Oslo"}'}


async def test_a_named_tool_is_the_only_one_and_required(port: PortUnderTest) -> None:
    named = {"type": "function", "function": {"name": "clock"}}
    assert (await port.chat(tools=[WEATHER, CLOCK], tool_choice=named)).status_code == 200
    prompt = port.engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    assert ([tool.name for tool in prompt.tools], prompt.tool_choice) == (["clock"], "required")


async def test_logprobs(port: PortUnderTest) -> None:
    port.engine.when("sure", Text("very sure"))
    content = (await port.chat("sure", logprobs=True, top_logprobs=2)).json()["choices"][0]["logprobs"][
        "content"
    ]
    assert [entry["token"] for entry in content] == ["very", " sure"]
    assert bytes(content[1]["bytes"]) == b" sure"
    assert len(content[0]["top_logprobs"]) == 2
    chunks = (await port.events("sure", logprobs=True))[:-1]
    streamed = [
        entry["token"]
        for chunk in chunks
        if chunk["choices"][0]["logprobs"]
        for entry in chunk["choices"][0]["logprobs"]["content"]
    ]
    assert streamed == ["very", " sure"]


async def test_characters_split_between_tokens_arrive_whole(port: PortUnderTest) -> None:
    text = "naïve 你好 👩‍👩‍👧"
    raw = text.encode()
    port.engine.enqueue(Raw(tuple(raw[i : i + 1] for i in range(len(raw)))))
    chunks = (await port.events())[:-1]
    assert "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks) == text


async def test_the_cut_off_answer_says_length(port: PortUnderTest) -> None:
    port.engine.when("long", Text("one two three four"))
    body = (await port.chat("long", max_completion_tokens=2, max_tokens=4)).json()
    assert body["choices"][0]["finish_reason"] == "length"
    assert body["choices"][0]["message"]["content"] == "one two"


async def test_the_engines_finish_reason_is_kept(port: PortUnderTest) -> None:
    port.engine.enqueue(Text("no"), End(FinishReason.CONTENT_FILTER))
    assert (await port.chat()).json()["choices"][0]["finish_reason"] == "content_filter"


# ---------------------------------------------------------------- errors


async def test_an_error_before_the_first_byte_has_its_status(port: PortUnderTest) -> None:
    for stream in (False, True):
        response = await port.chat("word " * 600, stream=stream)
        error = response.json()["error"]
        assert response.status_code == 400
        assert (error["code"], error["param"], error["type"]) == (
            "context_length_exceeded",
            "messages",
            "invalid_request_error",
        )
        assert "512" in error["message"] and str(error["details"]["prompt_tokens"]) in error["message"]


async def test_an_error_in_the_middle_ends_the_stream_without_done(port: PortUnderTest) -> None:
    port.engine.enqueue(Text("so far so"), Crash())
    *chunks, last = await port.events()
    assert last["error"]["code"] == "engine_crashed"
    assert last["error"]["type"] == "server_error"
    assert chunks[-1]["choices"][0]["delta"]["content"] == " so"
    assert "[DONE]" not in chunks


async def test_a_crash_must_not_be_replayed(port: PortUnderTest) -> None:
    port.engine.enqueue(Crash(), Start())
    response = await port.chat(stream=True)
    assert response.status_code == 500
    assert response.headers["x-should-retry"] == "false"
    assert (await port.chat()).status_code == 200


async def test_an_engine_that_dies_in_prefill_gives_a_real_status(port: PortUnderTest) -> None:
    port.engine.enqueue(Prefill(1), Start(), Crash())
    assert (await port.chat(stream=True)).status_code == 500


async def test_a_failed_whole_reply_is_an_error_with_a_body(port: PortUnderTest) -> None:
    port.engine.enqueue(Text("some"), Fail(GenerationFailed("It broke.", hint="Try again.")))
    response = await port.chat()
    assert response.status_code == 500
    assert response.json()["error"] == {
        "message": "It broke. Try again.",
        "type": "server_error",
        "param": None,
        "code": "generation_failed",
        "hint": "Try again.",
    }


async def test_an_unknown_model_is_404_with_near_names(port: PortUnderTest) -> None:
    response = await port.chat(model="tinny:Q4_K_M")
    error = response.json()["error"]
    assert response.status_code == 404
    assert (error["code"], error["param"]) == ("model_not_found", "model")
    assert MODEL in error["message"]


async def test_a_model_must_be_named_unless_there_is_a_default(port: PortUnderTest, open_port: Any) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    response = await port.client.post("/v1/chat/completions", json=body)
    assert (response.status_code, response.json()["error"]["param"]) == (400, "model")
    other = open_port(default=MODEL)
    assert (await other.client.post("/v1/chat/completions", json=body)).json()["model"] == MODEL


async def test_a_full_queue_says_when_to_come_back(open_port: Any) -> None:
    engine = ScriptedEngine(capabilities=DEFAULT_CAPABILITIES - {Capability.PRIORITY})
    port = open_port(engine=engine, queue_limit=1)
    gate = asyncio.Event()
    port.engine.when("wait", Wait(gate))
    await port.chat("load the model")
    async with asyncio.TaskGroup() as group:
        running = [group.create_task(port.chat("wait")) for _ in range(8)]
        await until(lambda: port.engine.calls == 9)
        waiting = group.create_task(port.chat("wait"))
        await until(lambda: len(port.runtime.activity.open) == 9)
        refused = await port.chat("one too many")
        gate.set()
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "queue_full"
    assert int(refused.headers["retry-after"]) >= 1
    assert all(task.result().status_code == 200 for task in (*running, waiting))


# ---------------------------------------------------------------- what the engine is asked


async def test_messages_are_normalised(port: PortUnderTest) -> None:
    response = await port.client.post(
        "/v1/chat/completions",
        json={
            "model": MODEL,
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "developer", "content": "be brief"},
                {"role": "user", "content": "c"},
                {"role": "system", "content": "be kind"},
            ],
        },
    )
    assert response.status_code == 200
    prompt = port.engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    assert prompt.messages == (
        Message(role="system", content="be brief\n\nbe kind"),
        Message(role="user", content="a\nb\n\nc"),
    )


async def test_json_modes_reach_the_engine(port: PortUnderTest) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
    }
    body = (await port.chat(response_format={"type": "json_object"})).json()
    assert isinstance(json.loads(body["choices"][0]["message"]["content"]), dict)
    assert port.engine.requests[0].constraint == JsonObject()
    asked = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    body = (await port.chat(response_format=asked)).json()
    assert json.loads(body["choices"][0]["message"]["content"]) == {"n": 1}
    assert port.engine.requests[1].constraint == JsonSchema(schema, "answer")


async def test_what_the_grammar_lost_is_checked_at_the_end(port: PortUnderTest) -> None:
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
    asked = {"type": "json_schema", "json_schema": {"name": "set", "schema": schema}}
    port.engine.when("good", Text("[1, 2]"))
    port.engine.when("bad", Text("[1, 1]"))
    assert (await port.chat("good", response_format=asked)).status_code == 200
    response = await port.chat("bad", response_format=asked)
    assert (response.status_code, response.json()["error"]["code"]) == (500, "schema_mismatch")
    assert (await port.events("bad", response_format=asked))[-1]["error"]["code"] == "schema_mismatch"


async def test_unknown_fields_are_named_or_refused(port: PortUnderTest, open_port: Any) -> None:
    response = await port.chat(frobnicate=1, verbosity="low", user="me")
    assert response.status_code == 200
    assert response.headers["x-localllm-ignored"] == "frobnicate, verbosity"
    strict = await open_port(strict=True).chat(frobnicate=1)
    assert (strict.status_code, strict.json()["error"]["param"]) == (400, "frobnicate")


async def test_a_larger_context_is_loaded_when_asked(port: PortUnderTest) -> None:
    assert (await port.chat(context_length=256)).headers["x-localllm-context"].endswith("/256")
    assert (
        (await port.chat("long " * 400, context_length=1024)).headers["x-localllm-context"].endswith("/1024")
    )


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": ""}]}, "messages[0].role"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "tool", "content": "x", "tool_call_id": "1"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0].type"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"n": 0}, "n"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": []}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"max_completion_tokens": -2}, "max_completion_tokens"),
        ({"seed": 2**63}, "seed"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": ""}, "stop"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"99999999999": 1}}, "logit_bias"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].function.name"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools[0].function.name"),
        (
            {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "nope"}}},
            "tool_choice.function.name",
        ),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"service_tier": "gold"}, "service_tier"),
        ({"keep_alive": "soon"}, "keep_alive"),
        ({"prediction": {"type": "content", "content": "x"}, "n": 2}, "n"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"web_search_options": {}}, "web_search_options"),
        ({"grammar": "root ::= x", "response_format": {"type": "json_object"}}, "grammar"),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "image_url", "image_url": {"url": "http://127.0.0.1/"}}],
                    }
                ]
            },
            "messages[0].content[0].image_url.url",
        ),
    ],
)
async def test_bad_values_are_400_and_named(port: PortUnderTest, fields: dict[str, Any], param: str) -> None:
    response = await port.chat(**fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (400, param), error
    assert error["type"] == "invalid_request_error"
    assert port.engine.calls == 0


async def test_minus_one_and_no_limit_leave_it_to_the_context(port: PortUnderTest, open_port: Any) -> None:
    unlimited: list[dict[str, Any]] = [{}, {"max_tokens": -1}]
    for fields in unlimited:
        await port.chat(**fields)
        assert port.engine.requests[-1].max_tokens is None
    capped = open_port(max_output_tokens=3)
    await capped.chat()
    assert capped.engine.requests[-1].max_tokens == 3


async def test_the_same_without_v1_and_with_doubled_slashes(port: PortUnderTest) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    for path in ("/chat/completions", "//v1//chat/completions", "/v1/chat/completions/"):
        assert (await port.client.post(path, json=body)).status_code == 200, path


async def test_prefill_progress_does_not_open_the_stream(port: PortUnderTest) -> None:
    port.engine.enqueue(Prefill(1), Crash(), Start())
    assert (await port.chat(stream=True)).status_code == 500


async def test_records_carry_the_real_status(port: PortUnderTest) -> None:
    await port.chat()
    await port.chat("word " * 600)
    assert [(record.status, record.endpoint) for record in port.records.all] == [
        (200, "chat.completions"),
        (400, "chat.completions"),
    ]
    assert events_of(await port.chat(stream=True))
    assert port.records.all[-1].stream


async def test_refused_requests_are_recorded_too(port: PortUnderTest) -> None:
    await port.chat(temperature=9)
    await port.chat(model="nobody")
    await port.chat(stop="")
    assert [(record.status, record.error_code, record.model) for record in port.records.all] == [
        (400, "invalid_value", ""),
        (404, "model_not_found", ""),
        (400, "invalid_value", MODEL),
    ]
