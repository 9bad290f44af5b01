"""``/v1/responses``: the order of its events, what it makes of every kind of item, and going on from an earlier one."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from localllm.core.errors import NotFound
from localllm.core.gateway import KeyRequest
from localllm.core.generation import ChatPrompt, FinishReason, JsonSchema
from localllm.core.openai import WireMessage
from localllm.core.responses import ResponseReply
from localllm.service.stored_responses import StoredResponse, StoredResponses
from tests.support.script import CallTool, Crash, End, Reasoning, Text
from tests.unit.api.conftest import MODEL, OpenPort, PortUnderTest

TOOL = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}


async def create(
    port: PortUnderTest, asked: Any = "hello", headers: dict[str, str] | None = None, **fields: Any
) -> httpx.Response:
    body = {"model": MODEL, "input": asked, **fields}
    return await port.client.post("/v1/responses", json=body, headers=headers)


def events_of(response: httpx.Response) -> list[dict[str, Any]]:
    """Every event; each must carry its own type as its name, and the numbers must have no gap."""
    assert response.status_code == 200, response.text
    events = []
    for frame in response.text.removesuffix("\n\n").split("\n\n"):
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def prompt_of(port: PortUnderTest) -> ChatPrompt:
    prompt = port.engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt


async def test_a_whole_response(port: PortUnderTest) -> None:
    port.engine.enqueue(Text("one two"))
    body = (await create(port, instructions="be brief", metadata={"a": "b"}, temperature=0.5)).json()
    assert (body["object"], body["status"], body["id"][:5]) == ("response", "completed", "resp_")
    (message,) = body["output"]
    assert (message["type"], message["role"], message["status"]) == ("message", "assistant", "completed")
    assert message["content"] == [
        {"type": "output_text", "text": "one two", "annotations": [], "logprobs": []}
    ]
    assert body["usage"]["output_tokens"] == 2
    assert body["usage"]["total_tokens"] == body["usage"]["input_tokens"] + 2
    assert (body["instructions"], body["metadata"], body["temperature"]) == ("be brief", {"a": "b"}, 0.5)
    assert (body["error"], body["incomplete_details"]) == (None, None)
    assert [m.role for m in prompt_of(port).messages] == ["system", "user"]


async def test_the_order_of_a_streams_events(port: PortUnderTest) -> None:
    port.engine.enqueue(Reasoning("hm"), Text("one two"), CallTool("weather", '{"a":1}'))
    events = events_of(await create(port, stream=True, tools=[TOOL]))
    kinds = [event["type"].removeprefix("response.") for event in events]
    without_repeats = [kind for i, kind in enumerate(kinds) if i == 0 or kinds[i - 1] != kind]
    assert without_repeats == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done",
        "content_part.done", "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]  # fmt: skip
    created, last = events[0]["response"], events[-1]["response"]
    assert (created["status"], created["output"], created["usage"]) == ("in_progress", [], None)
    assert [item["type"] for item in last["output"]] == ["reasoning", "message", "function_call"]
    assert last["output"] == [e["item"] for e in events if e["type"] == "response.output_item.done"]
    assert (last["output"][2]["name"], last["output"][2]["arguments"]) == ("weather", '{"a":1}')
    assert len({item["id"] for item in last["output"]}) == 3
    assert "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta") == "one two"


async def test_a_whole_response_is_what_the_stream_ends_with(port: PortUnderTest) -> None:
    for stream in (False, True):
        port.engine.enqueue(Reasoning("hm"), Text("one two"))
        response = await create(port, stream=stream)
        body = events_of(response)[-1]["response"] if stream else response.json()
        said = [(item["type"], item["content"][0]["text"]) for item in body["output"]]
        assert said == [("reasoning", "hm"), ("message", "one two")]


@pytest.mark.parametrize(
    ("reason", "said"),
    [(FinishReason.LENGTH, "max_output_tokens"), (FinishReason.CONTENT_FILTER, "content_filter")],
)
async def test_an_answer_that_was_cut_is_incomplete(
    port: PortUnderTest, reason: FinishReason, said: str
) -> None:
    port.engine.enqueue(Text("one"), End(reason))
    events = events_of(await create(port, stream=True))
    assert events[-1]["type"] == "response.incomplete"
    assert events[-1]["response"]["status"] == "incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": said}
    assert events[-1]["response"]["output"][0]["status"] == "incomplete"


async def test_a_stream_that_breaks_off_says_failed(port: PortUnderTest) -> None:
    port.engine.enqueue(Text("one"), Crash())
    events = events_of(await create(port, stream=True))
    assert events[-1]["type"] == "response.failed"
    assert events[-1]["response"]["error"]["code"] == "engine_crashed"
    port.engine.enqueue(Crash())
    assert (await create(port)).status_code == 500


async def test_items_become_the_turns_that_they_are(port: PortUnderTest) -> None:
    items = [
        {"role": "user", "content": "first"},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "hm"}],
        },
        {
            "type": "message",
            "id": "m",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "ok"}],
        },
        {"type": "function_call", "id": "f", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "sun"},
        {"type": "function_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "rain"}]},
        {"type": "web_search_call", "id": "w", "status": "completed"},
        {"role": "user", "content": [{"type": "input_text", "text": "last"}]},
    ]
    response = await create(port, items, tools=[TOOL, {"type": "web_search"}])
    assert response.status_code == 200, response.text
    assert response.headers["x-localllm-ignored"] == "input[7]:web_search_call, tools[1]:web_search"
    prompt = prompt_of(port)
    assert [m.role for m in prompt.messages] == ["user", "assistant", "tool", "tool", "user"]
    turn = prompt.messages[1]
    assert (turn.content, turn.reasoning, [c.id for c in turn.tool_calls]) == ("ok", "hm", ["c1", "c2"])
    assert [m.content for m in prompt.messages[2:]] == ["sun", "rain", "last"]
    assert [tool.name for tool in prompt.tools] == ["weather"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": [{"type": "message", "role": "owl", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]"),
        ({"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "f"}]}]}, "input[0].content[0].type"),
        ({"input": []}, "messages"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tool_choice": {"type": "web_search_preview"}}, "tool_choice"),
        ({"truncation": "auto"}, "truncation"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"temperature": 3}, "temperature"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_named(port: PortUnderTest, fields: dict[str, Any], param: str) -> None:
    body = {"model": MODEL, "input": "hello", **fields}
    response = await port.client.post("/v1/responses", json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param
    assert port.engine.calls == 0


async def test_a_schema_and_a_named_tool_are_enforced(port: PortUnderTest) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    text = {"format": {"type": "json_schema", "name": "x", "schema": schema}}
    body = (await create(port, text=text)).json()
    assert isinstance(port.engine.requests[-1].constraint, JsonSchema)
    assert json.loads(body["output"][0]["content"][0]["text"]) == {"a": 1}
    assert body["text"]["format"]["schema"] == schema
    body = (await create(port, tools=[TOOL], tool_choice={"type": "function", "name": "weather"})).json()
    assert [item["type"] for item in body["output"]] == ["function_call"]
    assert prompt_of(port).tool_choice == "required"


async def test_token_figures_are_given_when_asked_for(port: PortUnderTest) -> None:
    body = (await create(port, include=["message.output_text.logprobs"], top_logprobs=2)).json()
    (first, *_) = body["output"][0]["content"][0]["logprobs"]
    assert first["token"] and len(first["top_logprobs"]) == 2


# ---------------------------------------------------------------- going on


async def test_a_response_goes_on_from_an_earlier_one(port: PortUnderTest) -> None:
    port.engine.enqueue(Reasoning("hm"), Text("I am well"))
    first = (await create(port, "how are you", instructions="be brief")).json()
    second = (await create(port, "good", previous_response_id=first["id"], instructions="be long")).json()
    said = [(m.role, m.content) for m in prompt_of(port).messages]
    assert said == [
        ("system", "be long"),
        ("user", "how are you"),
        ("assistant", "I am well"),
        ("user", "good"),
    ]
    assert second["previous_response_id"] == first["id"]
    third = events_of(await create(port, "and", previous_response_id=second["id"], stream=True))[-1][
        "response"
    ]
    assert len(prompt_of(port).messages) == 5
    kept = await port.client.get(f"/v1/responses/{third['id']}")
    assert kept.json() == third


async def test_tool_results_answer_calls_of_the_stored_turn(port: PortUnderTest) -> None:
    port.engine.enqueue(CallTool("weather", "{}"))
    first = (await create(port, "weather?", tools=[TOOL])).json()
    result = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "sun"}
    response = await create(port, [result], previous_response_id=first["id"], tools=[TOOL])
    assert response.status_code == 200, response.text
    assert [m.role for m in prompt_of(port).messages] == ["user", "assistant", "tool"]


async def test_what_is_not_kept_cannot_be_gone_on_from(port: PortUnderTest) -> None:
    unkept = (await create(port, store=False)).json()["id"]
    response = await create(port, previous_response_id=unkept)
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")
    kept = (await create(port)).json()["id"]
    assert (await port.client.delete(f"/v1/responses/{kept}")).json() == {
        "id": kept,
        "object": "response",
        "deleted": True,
    }
    assert (await port.client.get(f"/v1/responses/{kept}")).status_code == 404
    assert (await port.client.delete(f"/v1/responses/{kept}")).status_code == 404


async def test_responses_belong_to_their_key(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port()
    one, two = (
        {"authorization": f"Bearer {port.runtime.keys.create(KeyRequest(name=name)).key}"} for name in "ab"
    )
    made = (await create(port, headers=one)).json()["id"]
    assert (await port.client.get(f"/v1/responses/{made}", headers=one)).status_code == 200
    assert (await port.client.get(f"/v1/responses/{made}", headers=two)).status_code == 404
    assert (await create(port, headers=two, previous_response_id=made)).status_code == 404


def test_the_oldest_responses_make_room() -> None:
    def stored(number: int) -> StoredResponse:
        reply = ResponseReply(id=f"resp_{number}", created_at=0, status="completed", model="m")
        return StoredResponse(reply=reply, conversation=(WireMessage(role="user", content="x" * 1000),))

    ring = StoredResponses(max_bytes=5000)
    for number in range(10):
        ring.put(None, stored(number))
    assert 0 < len(ring) < 5
    assert ring.get(None, "resp_9").reply.id == "resp_9"
    with pytest.raises(NotFound):
        ring.get(None, "resp_0")
    ring.delete(None, "resp_9")
    with pytest.raises(NotFound):
        ring.get(None, "resp_9")


# ---------------------------------------------------------------- tokens


async def test_text_to_tokens_and_back(port: PortUnderTest) -> None:
    body = (await port.client.post("/tokenize", json={"model": MODEL, "content": "one two"})).json()
    assert (body["count"], len(body["tokens"]), body["max_model_len"]) == (2, 2, 512)
    again = (await port.client.post("/v1/tokenize", json={"model": MODEL, "prompt": "one two"})).json()
    assert again == body
    back = await port.client.post("/v1/detokenize", json={"model": MODEL, "tokens": body["tokens"]})
    assert back.json() == {"content": "one two", "prompt": "one two"}


async def test_a_conversation_is_counted_with_its_template(port: PortUnderTest) -> None:
    messages = [{"role": "user", "content": "one two"}]
    body = (await port.client.post("/v1/tokenize", json={"model": MODEL, "messages": messages})).json()
    assert body["count"] > 0 and "tokens" not in body


@pytest.mark.parametrize("fields", [{}, {"content": "a", "prompt": "b"}])
async def test_one_thing_is_tokenized(port: PortUnderTest, fields: dict[str, str]) -> None:
    response = await port.client.post("/v1/tokenize", json={"model": MODEL, **fields})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "content")
