"""``/v1/messages``: what Anthropic's own client makes of the port, and how its requests become ours."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anthropic
import httpx
import pytest
from anthropic import AsyncAnthropic

from localllm.api.v1.anthropic_input import without_billing_header
from localllm.core.generation import ChatPrompt, FinishReason
from tests.support.script import CallTool, Crash, End, Reasoning, Text
from tests.unit.api.conftest import MODEL, OpenPort, PortUnderTest, listening

ASK: list[Any] = [{"role": "user", "content": "hello"}]
TOOL: Any = {
    "name": "weather",
    "description": "The weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}


@pytest.fixture
async def client(port: PortUnderTest) -> AsyncIterator[AsyncAnthropic]:
    async with listening(port.app) as number, client_for(number, "none-needed") as made:
        yield made


def client_for(number: int, key: str) -> AsyncAnthropic:
    return AsyncAnthropic(api_key=key, base_url=f"http://127.0.0.1:{number}", max_retries=0)


def prompt_of(port: PortUnderTest) -> ChatPrompt:
    prompt = port.engine.requests[-1].prompt
    assert isinstance(prompt, ChatPrompt)
    return prompt


async def post(port: PortUnderTest, **fields: Any) -> httpx.Response:
    body = {"model": MODEL, "max_tokens": 50, "messages": ASK, **fields}
    return await port.client.post("/v1/messages", json=body)


# ---------------------------------------------------------------- by the real client


async def test_a_whole_message(port: PortUnderTest, client: AsyncAnthropic) -> None:
    port.engine.enqueue(Reasoning("hm"), Text("one two"))
    message = await client.messages.create(model=MODEL, max_tokens=50, messages=ASK, system="be brief")
    assert [block.type for block in message.content] == ["thinking", "text"]
    assert message.content[1].type == "text" and message.content[1].text == "one two"
    assert (message.model, message.role, message.stop_reason) == (MODEL, "assistant", "end_turn")
    assert message.id.startswith("msg_") and message._request_id is not None
    assert message.usage.output_tokens == 3
    assert message.usage.input_tokens > 0
    assert [m.role for m in prompt_of(port).messages] == ["system", "user"]
    assert port.engine.requests[-1].max_tokens == 50


async def test_a_streamed_message_is_the_same(port: PortUnderTest, client: AsyncAnthropic) -> None:
    port.engine.enqueue(Reasoning("hm"), Text("one two"), CallTool("weather", '{"city":"Oslo"}'))
    kinds = []
    async with client.messages.stream(model=MODEL, max_tokens=50, messages=ASK, tools=[TOOL]) as stream:
        async for event in stream:
            kinds.append(event.type)
        message = await stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 3
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
    call = message.content[2]
    assert call.type == "tool_use" and (call.name, call.input) == ("weather", {"city": "Oslo"})
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens > 0


async def test_the_tool_loop(port: PortUnderTest, client: AsyncAnthropic) -> None:
    port.engine.enqueue(CallTool("weather", '{"city":"Oslo"}'))
    first = await client.messages.create(model=MODEL, max_tokens=50, messages=ASK, tools=[TOOL])
    call = first.content[0]
    assert call.type == "tool_use"
    result: Any = {
        "type": "tool_result",
        "tool_use_id": call.id,
        "content": [{"type": "text", "text": "sun"}],
    }
    turn: Any = {"role": "user", "content": [result, {"type": "text", "text": "and now?"}]}
    messages: list[Any] = [*ASK, {"role": "assistant", "content": first.content}, turn]
    await client.messages.create(model=MODEL, max_tokens=50, messages=messages, tools=[TOOL])
    prompt = prompt_of(port)
    assert [m.role for m in prompt.messages] == ["user", "assistant", "tool", "user"]
    assert prompt.messages[1].tool_calls[0].arguments == '{"city": "Oslo"}'
    assert (prompt.messages[2].content, prompt.messages[2].tool_call_id) == ("sun", call.id)


async def test_a_named_tool_must_be_called(port: PortUnderTest, client: AsyncAnthropic) -> None:
    choice: Any = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    message = await client.messages.create(
        model=MODEL, max_tokens=50, messages=ASK, tools=[TOOL], tool_choice=choice
    )
    assert message.content[0].type == "tool_use"
    assert (prompt_of(port).tool_choice, prompt_of(port).parallel_tool_calls) == ("required", False)


async def test_tokens_are_counted(port: PortUnderTest, client: AsyncAnthropic) -> None:
    short = await client.messages.count_tokens(model=MODEL, messages=ASK)
    long = await client.messages.count_tokens(model=MODEL, messages=ASK, system="a much longer prompt")
    assert 0 < short.input_tokens < long.input_tokens
    assert port.engine.calls == 0


async def test_errors_are_those_that_the_client_knows(port: PortUnderTest, client: AsyncAnthropic) -> None:
    with pytest.raises(anthropic.NotFoundError) as missing:
        await client.messages.create(model="nothing", max_tokens=5, messages=ASK)
    body: Any = missing.value.body
    assert (body["type"], body["error"]["type"]) == ("error", "not_found_error")
    assert (body["error"]["code"], body["request_id"]) == ("model_not_found", missing.value.request_id)
    with pytest.raises(anthropic.BadRequestError):
        await client.messages.create(model=MODEL, max_tokens=5, messages=[])
    port.engine.enqueue(Text("one"), Crash())
    with pytest.raises(anthropic.APIStatusError):
        async with client.messages.stream(model=MODEL, max_tokens=50, messages=ASK) as stream:
            await stream.get_final_message()


async def test_the_key_may_come_as_anthropics_clients_send_it(open_port: OpenPort) -> None:
    port: PortUnderTest = open_port(api_keys=("the-key",))
    async with listening(port.app) as number:
        async with client_for(number, "the-key") as client:
            assert (await client.messages.create(model=MODEL, max_tokens=5, messages=ASK)).content
        async with client_for(number, "another") as client:
            with pytest.raises(anthropic.AuthenticationError):
                await client.messages.create(model=MODEL, max_tokens=5, messages=ASK)


# ---------------------------------------------------------------- what becomes of a request


@pytest.mark.parametrize(
    ("reason", "said"),
    [(FinishReason.LENGTH, "max_tokens"), (FinishReason.CONTENT_FILTER, "refusal")],
)
async def test_why_it_ended(port: PortUnderTest, reason: FinishReason, said: str) -> None:
    port.engine.enqueue(Text("one"), End(reason))
    assert (await post(port)).json()["stop_reason"] == said


async def test_the_stop_sequence_is_named(port: PortUnderTest) -> None:
    port.engine.enqueue(Text("one STOP two"))
    body = (await post(port, stop_sequences=["STOP"])).json()
    assert (body["stop_reason"], body["stop_sequence"]) == ("stop_sequence", "STOP")
    assert body["content"] == [{"type": "text", "text": "one "}]


async def test_an_answer_that_was_begun_is_gone_on_with(port: PortUnderTest) -> None:
    await post(port, messages=[*ASK, {"role": "assistant", "content": "I think"}])
    assert prompt_of(port).continue_final_message
    await post(port)
    assert not prompt_of(port).continue_final_message


@pytest.mark.parametrize(
    ("thinking", "effort"),
    [
        (None, None),
        ({"type": "disabled"}, "none"),
        ({"type": "adaptive"}, None),
        ({"type": "enabled", "budget_tokens": 1024}, "low"),
        ({"type": "enabled", "budget_tokens": 4096}, "medium"),
        ({"type": "enabled", "budget_tokens": 32000}, "high"),
    ],
)
async def test_thinking_is_an_effort(port: PortUnderTest, thinking: Any, effort: str | None) -> None:
    await post(port, thinking=thinking)
    assert prompt_of(port).reasoning_effort == effort


async def test_earlier_thinking_and_foreign_tools(port: PortUnderTest) -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "ok"},
    ]
    messages = [*ASK, {"role": "assistant", "content": blocks}, {"role": "user", "content": "go on"}]
    response = await post(
        port, messages=messages, tools=[TOOL, {"type": "web_search_20250305", "name": "web"}]
    )
    assert response.headers["x-localllm-ignored"] == "tools[1]:web_search_20250305"
    turn = prompt_of(port).messages[1]
    assert (turn.content, turn.reasoning) == ("ok", "hm")
    assert [tool.name for tool in prompt_of(port).tools] == ["weather"]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"temperature": 1.5}, "temperature"),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, "text and images"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}]},
            "as base64",
        ),
        ({"messages": [{"role": "assistant", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]}, "assistant's turn"),
        ({"tools": [{"name": "a b", "input_schema": {}}]}, "Invalid tool tools[0]"),
        ({"tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ],
)  # fmt: skip
async def test_what_cannot_be_is_refused_before_the_engine(
    port: PortUnderTest, fields: dict[str, Any], said: str
) -> None:
    response = await post(port, **fields)
    assert (response.status_code, response.json()["error"]["type"]) == (400, "invalid_request_error")
    assert response.json()["type"] == "error"
    assert said in response.json()["error"]["message"]
    assert port.engine.calls == 0


def test_the_line_that_differs_each_time_is_taken_off_the_front() -> None:
    line = "x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;"
    assert without_billing_header(line) == ""
    assert without_billing_header(f"{line}\nYou are") == "You are"
    assert without_billing_header(f"You say {line}") == f"You say {line}"


async def test_the_prompt_stays_the_same_whoever_pays(port: PortUnderTest) -> None:
    prompts = []
    for tag in ("a1", "b2"):
        blocks = [
            {"type": "text", "text": f"x-anthropic-billing-header: cch={tag};"},
            {"type": "text", "text": "You are helpful", "cache_control": {"type": "ephemeral"}},
        ]
        await post(port, system=blocks)
        prompts.append(prompt_of(port))
    assert prompts[0] == prompts[1]
    assert prompts[0].messages[0].content == "You are helpful"
