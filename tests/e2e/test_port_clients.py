"""The official OpenAI and Anthropic clients on the newer endpoints, and the port's policies, with the real small model."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest
from anthropic import Anthropic
from openai import OpenAI

from tests.support.running_service import RunningService, running_service

pytestmark = pytest.mark.timeout(300)

ASK: list[Any] = [{"role": "user", "content": "Name a colour."}]
LONG = "Remember: " + "the quick brown fox " * 40
WEATHER: Any = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
    "required": ["city"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, demo_model: Path) -> Iterator[RunningService]:
    settings = {"LOCALLLM_GATEWAY_CACHE": "true", "LOCALLLM_GATEWAY_AUDIT": "true"}
    with running_service(tmp_path_factory.mktemp("clients"), demo_model, settings) as running:
        yield running


@pytest.fixture
def client(service: RunningService) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"{service.url}/v1", api_key="none-needed", max_retries=0, timeout=120) as made:
        yield made


@pytest.fixture
def claude(service: RunningService) -> Iterator[Anthropic]:
    with Anthropic(base_url=service.url, api_key="none-needed", max_retries=0, timeout=120) as made:
        yield made


def test_a_response_and_going_on_from_it(service: RunningService, client: OpenAI) -> None:
    first = client.responses.create(model=service.model, input="Name a colour.", max_output_tokens=12)
    assert first.output_text
    assert first.usage is not None and 0 < first.usage.output_tokens <= 12
    assert first.status in ("completed", "incomplete")
    second = client.responses.create(
        model=service.model, input="Another.", previous_response_id=first.id, max_output_tokens=4
    )
    assert second.usage is not None
    assert second.usage.input_tokens > first.usage.input_tokens + first.usage.output_tokens
    assert client.responses.retrieve(second.id).output == second.output
    client.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(first.id)


def test_a_streamed_response(service: RunningService, client: OpenAI) -> None:
    stream = client.responses.create(
        model=service.model, input="Name a colour.", max_output_tokens=8, stream=True
    )
    events = list(stream)
    said = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    last = events[-1]
    assert last.type in ("response.completed", "response.incomplete")
    assert said and last.response.output_text == said


def test_a_response_that_must_call_a_tool(service: RunningService, client: OpenAI) -> None:
    tool: Any = {"type": "function", "name": "weather", "parameters": WEATHER, "strict": True}
    response = client.responses.create(
        model=service.model,
        input="Weather in Oslo?",
        tools=[tool],
        tool_choice="required",
        max_output_tokens=100,
        temperature=0,
    )
    call = response.output[-1]
    assert call.type == "function_call" and call.name == "weather"
    assert call.arguments.replace(" ", "") in ('{"city":"Oslo"}', '{"city":"Rome"}')


def test_a_message(service: RunningService, claude: Anthropic) -> None:
    message = claude.messages.create(model=service.model, max_tokens=12, messages=ASK)
    assert message.content[0].type == "text" and message.content[0].text
    assert 0 < message.usage.output_tokens <= 12
    counted = claude.messages.count_tokens(model=service.model, messages=ASK)
    read = message.usage.cache_read_input_tokens or 0
    assert counted.input_tokens == message.usage.input_tokens + read
    with claude.messages.stream(model=service.model, max_tokens=12, messages=ASK) as stream:
        said = "".join(stream.text_stream)
        assert stream.get_final_message().usage.output_tokens > 0
    assert said


def test_a_message_that_must_call_a_tool(service: RunningService, claude: Anthropic) -> None:
    message = claude.messages.create(
        model=service.model,
        max_tokens=100,
        messages=ASK,
        tools=[{"name": "weather", "input_schema": WEATHER}],
        tool_choice={"type": "any"},
    )
    call = message.content[-1]
    assert message.stop_reason == "tool_use"
    assert call.type == "tool_use" and call.input in ({"city": "Oslo"}, {"city": "Rome"})


def test_what_differs_each_time_does_not_cost_the_prefix(service: RunningService, claude: Anthropic) -> None:
    def ask(tag: str) -> int:
        system: Any = [
            {"type": "text", "text": f"x-anthropic-billing-header: cc_version=1; cch={tag};"},
            {"type": "text", "text": LONG},
        ]
        message = claude.messages.create(model=service.model, max_tokens=1, messages=ASK, system=system)
        return message.usage.cache_read_input_tokens or 0

    ask("aaaa")
    assert ask("bbbb") > 100


def test_a_prompt_that_is_too_long_for_claude_clients(service: RunningService, claude: Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="context length"):
        claude.messages.create(
            model=service.model, max_tokens=1, messages=[{"role": "user", "content": "word " * 60_000}]
        )


def test_ollamas_client(service: RunningService) -> None:
    with ollama.Client(host=service.url, timeout=120) as asked:
        assert [model.model for model in asked.list().models] == [service.model]
        pieces = list(asked.chat(model=service.model, messages=ASK, options={"num_predict": 8}, stream=True))
        assert "".join(piece.message.content or "" for piece in pieces)
        assert pieces[-1].done and 0 < (pieces[-1].eval_count or 0) <= 8
        schema: Any = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        answer = asked.generate(
            model=service.model, prompt="A number?", format=schema, options={"num_predict": 60}
        )
        assert answer.response.lstrip().startswith("{")
        assert [model.model for model in asked.ps().models] == [service.model]


def test_a_hit_of_the_cache_takes_milliseconds(service: RunningService) -> None:
    body = {"model": service.model, "messages": ASK, "max_tokens": 12, "temperature": 0}
    with httpx.Client(base_url=service.url, timeout=120) as http:
        first = http.post("/v1/chat/completions", json=body)
        assert first.headers["x-localllm-cache"] == "miss"
        times_s = []
        for _ in range(20):
            began_s = time.perf_counter()
            again = http.post("/v1/chat/completions", json=body)
            times_s.append(time.perf_counter() - began_s)
            assert again.headers["x-localllm-cache"] == "hit"
            assert again.json()["choices"] == first.json()["choices"]
    assert min(times_s) <= 0.005


def test_each_request_is_in_the_audit_log(service: RunningService) -> None:
    log = service.paths.audit_dir / "audit.jsonl"
    text = log.read_text()
    assert text.count("\n") >= 20
    assert '"endpoint":"messages"' in text and '"endpoint":"responses"' in text
    assert "colour" not in text
