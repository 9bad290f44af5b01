"""``/api/*``: Ollama's own client on the port, and what becomes of its requests."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import ollama
import pytest

from localllm.core.generation import (
    ChatPrompt,
    FinishReason,
    ImagePart,
    JsonObject,
    JsonSchema,
    TextPart,
    TextPrompt,
)
from localllm.engines.base import Capability
from tests.support.script import CallTool, Crash, End, Reasoning, Text
from tests.support.scripted_engine import DEFAULT_CAPABILITIES, ScriptedEngine
from tests.unit.api.conftest import MODEL, OpenPort, PortUnderTest, listening

ASK: list[Any] = [{"role": "user", "content": "hello"}]
TOOL: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "d", "parameters": {"type": "object", "properties": {}}},
}


@pytest.fixture
async def client(port: PortUnderTest) -> AsyncIterator[ollama.AsyncClient]:
    async with (
        listening(port.app) as number,
        ollama.AsyncClient(host=f"http://127.0.0.1:{number}") as made,
    ):
        yield made


def prompt_of(port: PortUnderTest) -> ChatPrompt:
    prompt = port.engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt


async def post(port: PortUnderTest, path: str, **fields: Any) -> httpx.Response:
    return await port.client.post(f"/api/{path}", json={"model": MODEL, **fields})


# ---------------------------------------------------------------- by the real client


async def test_a_chat_whole_and_streamed(port: PortUnderTest, client: ollama.AsyncClient) -> None:
    for stream in (False, True):
        port.engine.enqueue(Reasoning("hm"), Text("one two"))
        if stream:
            pieces = [p async for p in await client.chat(model=MODEL, messages=ASK, stream=True)]
            assert [p.done for p in pieces] == [False] * (len(pieces) - 1) + [True]
            text = "".join(p.message.content or "" for p in pieces)
            thinking = "".join(p.message.thinking or "" for p in pieces)
            last: Any = pieces[-1]
        else:
            last = await client.chat(model=MODEL, messages=ASK, options={"num_predict": 9, "seed": 3})
            text, thinking = last.message.content, last.message.thinking
            assert (port.engine.requests[-1].max_tokens, port.engine.requests[-1].sampling.seed) == (9, 3)
        assert (text, thinking) == ("one two", "hm")
        assert (last.model, last.done_reason, last.eval_count) == (MODEL, "stop", 3)
        assert last.total_duration > 0 and last.prompt_eval_count > 0


async def test_the_tool_loop(port: PortUnderTest, client: ollama.AsyncClient) -> None:
    port.engine.enqueue(CallTool("weather", '{"a":1}'), CallTool("weather", '{"a":2}'))
    pieces = [p async for p in await client.chat(model=MODEL, messages=ASK, tools=[TOOL], stream=True)]
    calls = [call for p in pieces for call in p.message.tool_calls or ()]
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("weather", {"a": 1}),
        ("weather", {"a": 2}),
    ]
    messages = [
        *ASK,
        {"role": "assistant", "tool_calls": [call.model_dump() for call in calls]},
        {"role": "tool", "content": "sun", "tool_name": "weather"},
        {"role": "tool", "content": "rain", "tool_name": "weather"},
    ]
    await client.chat(model=MODEL, messages=messages, tools=[TOOL])
    prompt = prompt_of(port)
    made = [call.id for call in prompt.messages[1].tool_calls]
    assert [m.tool_call_id for m in prompt.messages[2:]] == made and len(set(made)) == 2


async def test_generate(port: PortUnderTest, client: ollama.AsyncClient) -> None:
    answer = await client.generate(model=MODEL, prompt="hello", system="be brief")
    assert answer.response == "You said: hello"
    assert [m.role for m in prompt_of(port).messages] == ["system", "user"]
    await client.generate(model=MODEL, prompt="as it is", raw=True)
    assert port.engine.requests[-1].prompt == TextPrompt("as it is")
    assert port.engine.requests[-1].max_tokens is None
    pieces = [p async for p in await client.generate(model=MODEL, prompt="hello", stream=True)]
    assert "".join(p.response or "" for p in pieces) == "You said: hello"


async def test_formats(port: PortUnderTest, client: ollama.AsyncClient) -> None:
    await client.chat(model=MODEL, messages=ASK, format="json")
    assert port.engine.requests[-1].constraint == JsonObject()
    schema: Any = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    answer = await client.chat(model=MODEL, messages=ASK, format=schema)
    assert isinstance(port.engine.requests[-1].constraint, JsonSchema)
    assert json.loads(answer.message.content or "") == {"a": 1}


async def test_embeddings(client: ollama.AsyncClient) -> None:
    two = await client.embed(model=MODEL, input=["a", "b"])
    assert len(two.embeddings) == 2 and two.prompt_eval_count == 2
    one = await client.embed(model=MODEL, input="a", dimensions=2)
    assert len(one.embeddings[0]) == 2


async def test_what_there_is(port: PortUnderTest, client: ollama.AsyncClient) -> None:
    listed = await client.list()
    assert [model.model for model in listed.models] == [MODEL, "org/model:Q8_0"]
    assert listed.models[0].details is not None
    assert listed.models[0].details.quantization_level == "Q4_K_M"
    assert (await client.ps()).models == []
    loaded = await client.generate(model=MODEL)
    assert (loaded.done, loaded.done_reason, port.engine.calls) == (True, "load", 0)
    (running,) = (await client.ps()).models
    assert (running.model, running.context_length) == (MODEL, 512)
    shown = await client.show(MODEL)
    assert shown.capabilities == ["completion"]
    assert shown.modelinfo is not None and shown.modelinfo["llama.context_length"] == 8192
    assert (await port.client.get("/api/version")).json()["version"]


async def test_errors_are_sentences(port: PortUnderTest, client: ollama.AsyncClient) -> None:
    with pytest.raises(ollama.ResponseError, match="does not exist") as missing:
        await client.chat(model="nothing", messages=ASK)
    assert missing.value.status_code == 404
    port.engine.enqueue(Text("one"), Crash())
    with pytest.raises(ollama.ResponseError):
        async for _ in await client.chat(model=MODEL, messages=ASK, stream=True):
            pass


# ---------------------------------------------------------------- what becomes of a request


async def test_a_name_without_a_tag(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port()
    response = await post(port, "chat", messages=ASK, model=f"{MODEL}:latest", stream=False)
    assert response.json()["model"] == f"{MODEL}:latest"
    assert (await post(port, "show", model="nothing:latest")).status_code == 404
    assert (await port.client.post("/api/show", json={"name": MODEL})).status_code == 200
    assert (await port.client.post("/api/show", json={})).json() == {
        "error": "Missing required parameter: model."
    }


@pytest.mark.parametrize(
    ("think", "effort"), [(None, None), (True, "medium"), (False, "none"), ("low", "low")]
)
async def test_thinking(port: PortUnderTest, think: Any, effort: str | None) -> None:
    await post(port, "chat", messages=ASK, think=think)
    assert prompt_of(port).reasoning_effort == effort


async def test_a_longer_context_is_loaded_when_asked_for(port: PortUnderTest) -> None:
    await post(port, "chat", messages=ASK, options={"num_ctx": 256}, keep_alive="5m")
    assert len(port.engine.loads) == 1
    assert (await post(port, "chat", messages=ASK, keep_alive="soon")).status_code == 400


async def test_an_answer_that_was_cut(port: PortUnderTest) -> None:
    port.engine.enqueue(Text("one"), End(FinishReason.LENGTH))
    lines = (await post(port, "chat", messages=ASK)).text.splitlines()
    assert json.loads(lines[-1])["done_reason"] == "length"


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("chat", {"messages": [{"role": "tool", "content": "x", "tool_name": "w"}]}),
        ("chat", {"messages": ASK, "options": {"temperature": 9}}),
        ("chat", {"messages": ASK, "options": {"num_predict": 0}}),
        ("chat", {"messages": [{"role": "user", "content": "x", "images": ["%%%"]}]}),
        ("generate", {"prompt": "x", "suffix": "y"}),
        ("generate", {"prompt": "x", "raw": True, "format": "json"}),
        ("embed", {"input": []}),
    ],
)
async def test_what_cannot_be(port: PortUnderTest, path: str, fields: dict[str, Any]) -> None:
    response = await post(port, path, **fields)
    assert response.status_code == 400, response.text
    assert isinstance(response.json()["error"], str)
    assert port.engine.calls == 0


async def test_images_go_to_a_model_that_sees(open_port: OpenPort) -> None:
    engine = ScriptedEngine(capabilities=DEFAULT_CAPABILITIES | {Capability.VISION})
    port: PortUnderTest = open_port(engine=engine)
    data = b"\x89PNG\r\n\x1a\n"
    message = {"role": "user", "content": "x", "images": [base64.b64encode(data).decode()]}
    assert (await post(port, "chat", messages=[message])).status_code == 200
    assert prompt_of(port).messages[0].content == (TextPart("x"), ImagePart(data, "image/png"))
