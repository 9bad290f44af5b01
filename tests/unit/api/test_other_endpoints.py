"""Plain completions, embeddings, models and the probes."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest

from localllm.api.v1.embeddings import shortened
from localllm.core.errors import BadRequest
from localllm.core.generation import TextPrompt, TokenPrompt
from localllm.engines.base import Capability
from tests.support.script import Crash, Text
from tests.support.scripted_engine import DEFAULT_CAPABILITIES, ScriptedEngine
from tests.unit.api.conftest import MODEL, OpenPort, PortUnderTest, events_of, until


async def complete(port: PortUnderTest, prompt: Any = "hi", **fields: Any) -> Any:
    response = await port.client.post("/v1/completions", json={"model": MODEL, "prompt": prompt, **fields})
    return response


# ---------------------------------------------------------------- completions


async def test_a_whole_completion(port: PortUnderTest) -> None:
    port.engine.enqueue(Text("one two"))
    body = (await complete(port)).json()
    assert body["object"] == "text_completion"
    assert body["id"].startswith("cmpl-")
    assert body["choices"] == [{"index": 0, "text": "one two", "logprobs": None, "finish_reason": "stop"}]
    assert body["usage"]["completion_tokens"] == 2
    request = port.engine.requests[-1]
    assert (request.prompt, request.max_tokens) == (TextPrompt("hi"), 16)


async def test_a_streamed_completion(port: PortUnderTest) -> None:
    port.engine.enqueue(Text("one two"))
    *chunks, usage, done = events_of(
        await complete(port, stream=True, stream_options={"include_usage": True})
    )
    assert [chunk["choices"][0]["text"] for chunk in chunks] == ["one", " two", ""]
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]["completion_tokens"], done) == ([], 2, "[DONE]")


async def test_many_prompts_are_numbered_through(port: PortUnderTest) -> None:
    port.engine.when("a", Text("for a"))
    port.engine.when("b", Text("for b"))
    body = (await complete(port, ["a", "b"], n=2)).json()
    assert [(choice["index"], choice["text"]) for choice in body["choices"]] == [
        (0, "for a"),
        (1, "for a"),
        (2, "for b"),
        (3, "for b"),
    ]
    assert body["usage"]["completion_tokens"] == 8
    chunks = events_of(await complete(port, ["a", "b"], stream=True))[:-1]
    text = {
        index: "".join(c["choices"][0]["text"] for c in chunks if c["choices"][0]["index"] == index)
        for index in (0, 1)
    }
    assert text == {0: "for a", 1: "for b"}


async def test_many_prompts_leave_room_in_the_queue(open_port: OpenPort) -> None:
    engine = ScriptedEngine(capabilities=DEFAULT_CAPABILITIES - {Capability.PRIORITY})
    port: PortUnderTest = open_port(engine=engine, queue_limit=8)
    response = await complete(port, [f"prompt {number}" for number in range(40)])
    assert response.status_code == 200
    assert len(response.json()["choices"]) == 40


async def test_one_failing_prompt_fails_the_request_and_frees_the_others(port: PortUnderTest) -> None:
    port.engine.when("bad", Crash())
    assert (await complete(port, ["good", "bad"])).status_code == 500
    assert not port.runtime.activity.open
    assert (await complete(port, "good")).status_code == 200


async def test_token_prompts(port: PortUnderTest) -> None:
    tokens = tuple(port.engine.vocabulary.encode("one two three"))
    await complete(port, list(tokens))
    assert port.engine.requests[-1].prompt == TokenPrompt(tokens)
    await complete(port, [list(tokens), list(tokens)])
    assert [request.prompt for request in port.engine.requests[-2:]] == [TokenPrompt(tokens)] * 2


async def test_echo_repeats_the_prompt(port: PortUnderTest) -> None:
    port.engine.when("say", Text(" so"))
    assert (await complete(port, "say", echo=True)).json()["choices"][0]["text"] == "say so"
    chunks = events_of(await complete(port, "say", echo=True, stream=True))[:-1]
    assert "".join(chunk["choices"][0]["text"] for chunk in chunks) == "say so"


async def test_logprobs_in_the_older_form(port: PortUnderTest) -> None:
    port.engine.when("sure", Text("very sure"))
    figures = (await complete(port, "sure", logprobs=2)).json()["choices"][0]["logprobs"]
    assert figures["tokens"] == ["very", " sure"]
    assert figures["text_offset"] == [0, 4]
    assert len(figures["token_logprobs"]) == len(figures["top_logprobs"]) == 2
    chunks = events_of(await complete(port, "sure", logprobs=1, stream=True))[:-1]
    offsets = [
        chunk["choices"][0]["logprobs"]["text_offset"] for chunk in chunks if chunk["choices"][0]["logprobs"]
    ]
    assert offsets == [[0], [4]]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt[1]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [-1]}, "prompt[0]"),
        ({"prompt": ["x"] * 65}, "prompt"),
        ({"prompt": {}}, "prompt"),
        ({"prompt": "x", "max_tokens": 0}, "max_tokens"),
        ({"prompt": "x", "suffix": "y"}, "suffix"),
        ({"prompt": "x", "best_of": 2}, "best_of"),
        ({"prompt": "x", "echo": True, "logprobs": 1}, "echo"),
        ({"prompt": [1], "echo": True}, "echo"),
        ({"prompt": "x", "logprobs": 21}, "logprobs"),
    ],
)
async def test_bad_completions_are_named(port: PortUnderTest, fields: dict[str, Any], param: str) -> None:
    response = await complete(port, **fields)
    assert response.status_code == 400
    assert response.json()["error"]["param"] == param
    assert port.engine.calls == 0


# ---------------------------------------------------------------- embeddings


async def embed(port: PortUnderTest, value: Any, **fields: Any) -> Any:
    return await port.client.post("/v1/embeddings", json={"model": MODEL, "input": value, **fields})


async def test_embeddings_as_floats_and_as_base64(port: PortUnderTest) -> None:
    floats = (await embed(port, ["one", "two"])).json()
    assert [item["index"] for item in floats["data"]] == [0, 1]
    assert floats["usage"] == {"prompt_tokens": 2, "total_tokens": 2}
    packed = (await embed(port, ["one", "two"], encoding_format="base64")).json()
    for one, other in zip(floats["data"], packed["data"], strict=True):
        raw = base64.b64decode(other["embedding"])
        assert struct.unpack(f"<{len(raw) // 4}f", raw) == pytest.approx(one["embedding"], rel=1e-6)


async def test_embeddings_of_tokens(port: PortUnderTest) -> None:
    tokens = port.engine.vocabulary.encode("one two")
    assert (await embed(port, tokens)).json()["usage"]["prompt_tokens"] == 2
    assert len((await embed(port, [tokens, tokens])).json()["data"]) == 2


async def test_dimensions_keep_the_length_one(port: PortUnderTest) -> None:
    vector = (await embed(port, "one", dimensions=2)).json()["data"][0]["embedding"]
    assert len(vector) == 2
    assert sum(value * value for value in vector) == pytest.approx(1)
    assert shortened((0.0, 0.0, 1.0), 2) == (0.0, 0.0)
    with pytest.raises(BadRequest):
        shortened((1.0,), 2)
    too_many = await embed(port, "one", dimensions=5000)
    assert (too_many.status_code, too_many.json()["error"]["param"]) == (400, "dimensions")


async def test_embedding_errors(port: PortUnderTest, open_port: OpenPort) -> None:
    for bad in ([], "", [""], [["a"]], 5, None):
        assert (await embed(port, bad)).status_code == 400, bad
    long = await embed(port, "word " * 600)
    assert (long.status_code, long.json()["error"]["param"]) == (400, "input")
    chat_only: PortUnderTest = open_port(
        engine=ScriptedEngine(capabilities=DEFAULT_CAPABILITIES - {Capability.EMBEDDING})
    )
    refused = await embed(chat_only, "one")
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unsupported_parameter")


# ---------------------------------------------------------------- models and probes


async def test_models_say_what_a_request_really_gets(port: PortUnderTest) -> None:
    listed = (await port.client.get("/v1/models")).json()
    assert listed["object"] == "list"
    first = listed["data"][0]
    assert first["id"] == MODEL
    assert (first["object"], first["created"], first["owned_by"]) == ("model", 1_700_000_000, "localllm")
    assert (first["loaded"], first["context_length"], first["max_context_length"]) == (False, None, 8192)
    await port.chat()
    loaded = (await port.client.get(f"/v1/models/{MODEL}")).json()
    assert (loaded["loaded"], loaded["context_length"], loaded["max_model_len"]) == (True, 512, 512)
    assert loaded["quantization"] == "Q4_K_M"
    assert {"chat", "completion", "tools", "embedding"} <= set(loaded["capabilities"])


async def test_model_ids_may_hold_slashes_and_colons(port: PortUnderTest) -> None:
    for path in ("/v1/models/org/model:Q8_0", "/v1/models/org%2Fmodel%3AQ8_0", "/models/org/model:Q8_0"):
        assert (await port.client.get(path)).json()["id"] == "org/model:Q8_0", path
    missing = await port.client.get("/v1/models/org/modl:Q8_0")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")


async def test_probes(port: PortUnderTest) -> None:
    assert (await port.client.get("/health")).json() == {"status": "ok"}
    assert (await port.client.get("/ready")).status_code == 503
    await port.chat()
    ready = await port.client.get("/ready")
    assert (ready.status_code, ready.json()["models"]) == (200, [MODEL])
    port.engine.instances[0].crash()
    await until(lambda: not port.runtime.manager.is_loaded(MODEL))
    assert (await port.client.get("/v1/ready")).status_code == 503
    assert (await port.client.get("/metrics")).text.startswith("#")
