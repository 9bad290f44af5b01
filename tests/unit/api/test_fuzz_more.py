"""Whatever is sent to the newer endpoints: an answer in the form that their clients expect, and never a 5xx."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from localllm.core.anthropic import CountTokensRequest, MessagesRequest
from localllm.core.config import GatewaySettings
from localllm.core.ollama_api import (
    OllamaChatRequest,
    OllamaEmbedRequest,
    OllamaGenerateRequest,
    OllamaShowRequest,
)
from localllm.core.openai import DetokenizeRequest, TokenizeRequest
from localllm.core.responses import ResponsesRequest
from tests.unit.api.conftest import MODEL, OpenPort, PortUnderTest
from tests.unit.api.test_fuzz import JSON, bodies

ASK = [{"role": "user", "content": "hi"}]
SHAPES: dict[str, tuple[Any, dict[str, Any]]] = {
    "/v1/responses": (ResponsesRequest, {"input": "hi"}),
    "/v1/messages": (MessagesRequest, {"messages": ASK, "max_tokens": 5}),
    "/v1/messages/count_tokens": (CountTokensRequest, {"messages": ASK}),
    "/v1/tokenize": (TokenizeRequest, {"content": "hi"}),
    "/v1/detokenize": (DetokenizeRequest, {"tokens": [1]}),
    "/api/chat": (OllamaChatRequest, {"messages": ASK}),
    "/api/generate": (OllamaGenerateRequest, {"prompt": "hi"}),
    "/api/embed": (OllamaEmbedRequest, {"input": "hi"}),
    "/api/show": (OllamaShowRequest, {}),
}
ITEM_TYPES = (
    "message", "function_call", "function_call_output", "reasoning", "item_reference", "else", "text", "image",
    "tool_use", "tool_result", "thinking", "redacted_thinking", "document", "input_text", "output_text",
    "input_image", "input_file", "refusal",
)  # fmt: skip
FIELDS = (
    "type", "role", "content", "text", "call_id", "output", "id", "name", "input", "arguments", "tool_use_id",
    "thinking", "source", "summary", "tool_calls", "tool_name", "images",
)  # fmt: skip

leaves = (
    st.none() | st.integers(-5, 5) | st.sampled_from(["x", "", "user", "assistant", "c1", "{}", *ITEM_TYPES])
)
items = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner,
            max_size=5,
        )
    ),
    max_leaves=10,
)
conversations = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(ITEM_TYPES), "role": st.sampled_from(["user", "assistant", "tool"])},
        optional={"content": items, "call_id": st.just("c1"), "output": items, "name": st.just("f")},
    ),
    max_size=4,
)

relaxed = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def check(path: str, response: httpx.Response) -> None:
    assert response.status_code < 500, response.text
    if response.status_code < 400:
        return
    body = response.json()
    if path.startswith("/api/"):
        assert isinstance(body["error"], str) and body["error"]
    elif "/messages" in path:
        assert body["type"] == "error" and body["error"].keys() >= {"type", "message"}
    else:
        assert body["error"].keys() >= {"message", "type", "param", "code"}


@pytest.mark.parametrize("path", SHAPES)
@relaxed
@given(data=st.data())
async def test_any_body(port: PortUnderTest, path: str, data: st.DataObject) -> None:
    shape, valid = SHAPES[path]
    body = data.draw(bodies(shape, **valid))
    check(path, await port.client.post(path, content=json.dumps(body), headers=JSON))


@pytest.mark.parametrize(
    ("path", "name"), [("/v1/responses", "input"), ("/v1/messages", "messages"), ("/api/chat", "messages")]
)
@relaxed
@given(conversation=conversations)
async def test_any_conversation_under_every_policy(
    open_port: OpenPort, path: str, name: str, conversation: list[dict[str, Any]]
) -> None:
    port: PortUnderTest = open_port(
        gateway=GatewaySettings(
            cache=True, mask_pii=True, blocked_patterns=("never", "a.b"), daily_tokens=10**9
        )
    )
    body = {"model": MODEL, name: conversation, "max_tokens": 5, "temperature": 0}
    check(path, await port.client.post(path, content=json.dumps(body), headers=JSON))
