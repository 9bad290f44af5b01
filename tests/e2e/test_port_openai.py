"""The official OpenAI client against the real service and the real small model: what a developer would do first."""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import psutil
import pytest
from openai import OpenAI

from localllm.settings.identity import read_admin_key
from tests.support.running_service import RunningService, running_service

pytestmark = pytest.mark.timeout(300)

ASK: list[Any] = [{"role": "user", "content": "Name a colour."}]
LONG: Any = {"type": "array", "items": {"type": "integer"}, "minItems": 900}
WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, demo_model: Path) -> Iterator[RunningService]:
    with running_service(tmp_path_factory.mktemp("port"), demo_model) as running:
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{service.url}/v1", api_key="none-needed", max_retries=0, timeout=120) as made:
        yield made


def test_a_chat(service: RunningService, client: OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=service.model, messages=ASK, max_completion_tokens=12, temperature=0
    )
    reply = raw.parse()
    assert reply.model == service.model
    assert reply.choices[0].message.role == "assistant"
    assert reply.choices[0].message.content
    assert reply.usage is not None
    assert 0 < reply.usage.completion_tokens <= 12
    used, limit = raw.headers["x-localllm-context"].split("/")
    assert int(used) == reply.usage.prompt_tokens
    assert int(limit) >= 512


def test_a_streamed_chat_is_the_same_answer(service: RunningService, client: OpenAI) -> None:
    whole = client.chat.completions.create(
        model=service.model, messages=ASK, max_tokens=16, temperature=0, seed=1
    )
    chunks = list(
        client.chat.completions.create(
            model=service.model,
            messages=ASK,
            max_tokens=16,
            temperature=0,
            seed=1,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [len(chunk.choices) for chunk in chunks] == [1] * (len(chunks) - 1) + [0]
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].usage is not None and whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


def test_cached_tokens(service: RunningService, client: OpenAI) -> None:
    long: list[Any] = [{"role": "user", "content": "Remember: " + "the quick brown fox " * 40}]
    client.chat.completions.create(model=service.model, messages=long, max_tokens=1)
    again = client.chat.completions.create(model=service.model, messages=long, max_tokens=1).usage
    assert again is not None and again.prompt_tokens_details is not None
    assert (again.prompt_tokens_details.cached_tokens or 0) > 100


def test_json_schema_is_enforced(service: RunningService, client: OpenAI) -> None:
    schema: Any = {
        "type": "object",
        "properties": {
            "colour": {"enum": ["red", "green"]},
            "code": {"type": "string", "pattern": r"^\d{3}-[a-f]$"},
            "anything": {"title": "No type at all", "maxLength": 3, "type": "string"},
        },
        "required": ["colour", "code", "anything"],
        "additionalProperties": False,
    }
    reply = client.chat.completions.create(
        model=service.model,
        messages=ASK,
        max_tokens=200,
        temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}},
    )
    assert reply.choices[0].finish_reason == "stop"
    answer = json.loads(reply.choices[0].message.content or "")
    assert answer["colour"] in ("red", "green")
    assert answer["code"][3] == "-" and len(answer["code"]) == 5


def test_json_object_is_an_object(service: RunningService, client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model=service.model,
        messages=ASK,
        max_tokens=60,
        temperature=0,
        response_format={"type": "json_object"},
    )
    assert (reply.choices[0].message.content or "").lstrip().startswith("{")


def test_logprobs(service: RunningService, client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model=service.model, messages=ASK, max_tokens=4, temperature=0, logprobs=True, top_logprobs=3
    )
    figures = reply.choices[0].logprobs
    assert figures is not None and figures.content
    for entry in figures.content:
        assert entry.logprob <= 0
        assert len(entry.top_logprobs) == 3
    spoken = b"".join(bytes(entry.bytes or []) for entry in figures.content).decode()
    assert (reply.choices[0].message.content or "") in spoken


def test_n_answers(service: RunningService, client: OpenAI) -> None:
    reply = client.chat.completions.create(
        model=service.model, messages=ASK, max_tokens=6, n=3, temperature=1.0
    )
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert reply.usage is not None and reply.usage.completion_tokens > 6


def test_stop_strings_end_the_answer_and_do_not_appear(service: RunningService, client: OpenAI) -> None:
    prompt = "1, 2, 3, 4, 5, 6, 7, 8,"
    free = client.completions.create(model=service.model, prompt=prompt, max_tokens=24, temperature=0)
    text = free.choices[0].text
    stop = text[6:9]
    stopped = client.completions.create(
        model=service.model, prompt=prompt, max_tokens=24, temperature=0, stop=stop
    )
    assert stopped.choices[0].text == text[: text.index(stop)]
    assert stopped.choices[0].finish_reason == "stop"


def test_a_seed_repeats_itself(service: RunningService, client: OpenAI) -> None:
    texts = {
        client.chat.completions.create(
            model=service.model, messages=ASK, max_tokens=12, temperature=1.5, seed=7
        )
        .choices[0]
        .message.content
        for _ in range(2)
    }
    assert len(texts) == 1


def test_a_required_tool_is_called(service: RunningService, client: OpenAI) -> None:
    choices: list[Any] = ["required", {"type": "function", "function": {"name": "weather"}}]
    for choice in choices:
        reply = client.chat.completions.create(
            model=service.model,
            messages=[{"role": "user", "content": "What is the weather in Rome?"}],
            tools=[WEATHER],
            tool_choice=choice,
            max_tokens=100,
            temperature=0,
        )
        (call,) = reply.choices[0].message.tool_calls or []
        assert call.type == "function"
        assert call.function.name == "weather"
        assert json.loads(call.function.arguments)["city"] in ("Oslo", "Rome")
        assert reply.choices[0].finish_reason == "tool_calls"


def test_models(service: RunningService, client: OpenAI) -> None:
    assert service.model in [model.id for model in client.models.list()]
    model: Any = client.models.retrieve(service.model)
    assert model.context_length == model.max_model_len
    assert model.max_context_length == 32768
    assert model.owned_by == "localllm"


@pytest.mark.parametrize(
    ("fields", "error", "code"),
    [
        ({"model": "gemma3-270"}, openai.NotFoundError, "model_not_found"),
        ({"messages": []}, openai.BadRequestError, "invalid_value"),
        ({"temperature": 7}, openai.BadRequestError, "invalid_value"),
        (
            {"messages": [{"role": "user", "content": "word " * 40_000}]},
            openai.BadRequestError,
            "context_length_exceeded",
        ),
        ({"extra_body": {"grammar": "root ::= ("}}, openai.BadRequestError, "invalid_grammar"),
    ],
)
def test_errors_are_the_clients_own_classes(
    service: RunningService,
    client: OpenAI,
    fields: dict[str, Any],
    error: type[openai.APIStatusError],
    code: str,
) -> None:
    for stream in (False, True):
        asked: dict[str, Any] = {"model": service.model, "messages": ASK, "max_tokens": 4, "stream": stream}
        with pytest.raises(error) as raised:
            client.chat.completions.create(**asked | fields)
        assert raised.value.code == code
        assert raised.value.type == "invalid_request_error"


def test_embeddings_are_refused_or_right(service: RunningService, client: OpenAI) -> None:
    """The SDK asks for base64 by itself; a chat model that gives no embeddings says so."""
    try:
        reply = client.embeddings.create(model=service.model, input=["one", "two"])
    except openai.BadRequestError as refused:
        assert refused.code == "unsupported_parameter"
    else:
        assert len(reply.data) == 2
        assert sum(value * value for value in reply.data[0].embedding) == pytest.approx(1, abs=1e-3)


def active_requests(service: RunningService) -> list[Any]:
    key = read_admin_key(service.paths)
    state = httpx.get(f"{service.url}/localllm/state", headers={"authorization": f"Bearer {key}"}).json()
    requests: list[Any] = state["requests"]
    return requests


def wait_until(condition: Callable[[], bool], within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    "prompt", ["Count.", "Remember: " + "one two three " * 600], ids=["decode", "prefill"]
)
def test_a_client_that_leaves_frees_its_place_within_a_second(
    service: RunningService, client: OpenAI, stream: bool, prompt: str
) -> None:
    client.chat.completions.create(model=service.model, messages=ASK, max_tokens=1)
    body = {
        "model": service.model,
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": 2000,
        "stream": stream,
        "response_format": {"type": "json_schema", "json_schema": {"name": "long", "schema": LONG}},
    }
    data = json.dumps(body).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", int(service.url.rsplit(":", 1)[1]))) as connection:
        connection.sendall(head.encode() + data)
        wait_until(lambda: len(active_requests(service)) == 1, 10)
        time.sleep(0.3)
    wait_until(lambda: not active_requests(service), 1.0)


def test_a_killed_engine_ends_the_stream_with_an_error_and_comes_back(
    service: RunningService, client: OpenAI
) -> None:
    stream = client.chat.completions.create(
        model=service.model,
        messages=ASK,
        max_tokens=2000,
        stream=True,
        extra_body={"logit_bias": {"1": -100}},
    )
    received = iter(stream)
    next(received)
    for child in psutil.Process(service.pid).children(recursive=True):
        os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(openai.APIError) as raised:
        list(received)
    assert raised.value.code == "engine_crashed"
    reply = client.chat.completions.create(model=service.model, messages=ASK, max_tokens=2)
    assert reply.choices[0].message.content is not None
