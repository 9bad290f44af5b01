"""Whatever is sent: an answer in the port's form, and never a 5xx for the client's fault."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localllm.api.v1.chat_reply import ChatChunks
from localllm.api.v1.completion_reply import CompletionChunks
from localllm.api.v1.reply import ReplyHead
from localllm.core.generation import ReasoningDelta, Started, TextDelta
from localllm.core.openai import ChatRequest, CompletionRequest, EmbeddingRequest
from tests.unit.api.conftest import MODEL, PortUnderTest

relaxed = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["function", "user", "json_schema", "text", "a\x00b", "\u202e", "auto", "required"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["type", "function", "name", "role", "content", "json_schema", "schema", "text", "1"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


def bodies(shape: Any, **valid: Any) -> st.SearchStrategy[dict[str, Any]]:
    """A valid body with up to four of its fields replaced by anything."""
    names = st.sampled_from([*shape.__struct_encode_fields__, "unheard_of"])
    return st.dictionaries(names, json_values, max_size=4).map(lambda odd: {"model": MODEL, **valid, **odd})


def check(response: httpx.Response) -> None:
    assert response.status_code < 500, response.text
    if response.status_code >= 400:
        error = response.json()["error"]
        assert error.keys() >= {"message", "type", "param", "code"}
        assert isinstance(error["message"], str) and error["message"]


@relaxed
@given(body=bodies(ChatRequest, messages=[{"role": "user", "content": "hi"}]))
async def test_any_chat_body(port: PortUnderTest, body: dict[str, Any]) -> None:
    check(await port.client.post("/v1/chat/completions", content=json.dumps(body), headers=JSON))


@relaxed
@given(body=bodies(CompletionRequest, prompt="hi"))
async def test_any_completion_body(port: PortUnderTest, body: dict[str, Any]) -> None:
    check(await port.client.post("/v1/completions", content=json.dumps(body), headers=JSON))


@relaxed
@given(body=bodies(EmbeddingRequest, input="hi"))
async def test_any_embedding_body(port: PortUnderTest, body: dict[str, Any]) -> None:
    check(await port.client.post("/v1/embeddings", content=json.dumps(body), headers=JSON))


@relaxed
@given(body=st.binary(max_size=200), encoding=st.sampled_from(["", "gzip", "deflate", "x"]))
async def test_any_bytes(port: PortUnderTest, body: bytes, encoding: str) -> None:
    headers = {**JSON, "content-encoding": encoding}
    check(await port.client.post("/v1/chat/completions", content=body, headers=headers))


@relaxed
@given(
    path=st.text(alphabet="/v1models:%2F.?#é chat\x7f", max_size=30),
    method=st.sampled_from(["GET", "POST", "PUT", "OPTIONS"]),
)
async def test_any_path(port: PortUnderTest, path: str, method: str) -> None:
    scope: dict[str, Any] = {
        "type": "http", "method": method, "path": "/" + path, "raw_path": b"/", "query_string": b"", "scheme": "http",
        "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 1), "root_path": "",
        "http_version": "1.1",
    }  # fmt: skip
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        if not statuses:
            return {"type": "http.request", "body": b"", "more_body": False}
        await asyncio.sleep(3600)
        raise AssertionError

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await port.app(scope, receive, send)
    assert len(statuses) == 1 and (statuses[0] < 500 or scope["path"] in ("/ready", "/v1/ready"))


JSON = {"content-type": "application/json"}
HEAD = ReplyHead(id='chatcmpl-"x', created=1, model='odd "name"\n', choices=2, include_usage=True)


@given(st.lists(st.tuples(st.text(max_size=10), st.integers(0, 1), st.booleans()), max_size=10))
def test_chunks_are_frames_of_json_and_keep_the_text(pieces: list[tuple[str, int, bool]]) -> None:
    for writer in (ChatChunks(HEAD), CompletionChunks(HEAD)):
        frames = writer(Started(1, 0, 8))
        said = ""
        for text, choice, reasoning in pieces:
            frames += writer(ReasoningDelta(text, choice) if reasoning else TextDelta(text, choice))
        frames += writer.ending()
        events = frames.decode().split("\n\n")
        assert (events.pop(), events.pop()) == ("", "data: [DONE]")
        for event in events:
            (line,) = event.split("\n")
            body = json.loads(line.removeprefix("data: "))
            assert (body["id"], body["model"]) == (HEAD.id, HEAD.model)
            for choice_reply in body["choices"]:
                delta = choice_reply.get("delta", {})
                said += (
                    choice_reply.get("text") or delta.get("content") or delta.get("reasoning_content") or ""
                )
        assert said == "".join(text for text, _, _ in pieces)
