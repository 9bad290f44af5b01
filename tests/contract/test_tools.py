"""Tools and grammars: what is required is enforced, and no marker of either is ever text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from localllm.core.errors import BadRequest
from localllm.core.generation import (
    ChatPrompt,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    Grammar,
    Message,
    TextDelta,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
    Usage,
)
from localllm.engines.base import Capability, Instance
from tests.contract.subjects import can, request

pytestmark = pytest.mark.asyncio(loop_scope="module")

WEATHER = Tool(
    "get_weather",
    "The weather in a city",
    {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Lima"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
)
CLOCK = Tool("get_time", "The time", {"type": "object", "properties": {}, "additionalProperties": False})


def ask(*messages: Message, **fields: Any) -> GenerationRequest:
    prompt = ChatPrompt(
        messages=messages or (Message(role="user", content="What is the weather in Oslo?"),),
        **fields,
    )
    return request("", prompt=prompt, max_tokens=120)


async def events_of(instance: Instance, asked: GenerationRequest) -> list[Event]:
    return [event async for event in instance.generate(asked)]


async def prompt_tokens(instance: Instance, asked: GenerationRequest) -> int:
    """What a generation says that its prompt had."""
    usage = (await events_of(instance, replace(asked, max_tokens=1)))[-1]
    assert isinstance(usage, Usage)
    return usage.prompt_tokens


def reasons(events: list[Event]) -> list[FinishReason]:
    return [event.reason for event in events if isinstance(event, Finished)]


@pytest.mark.parametrize("tools", [(WEATHER,), (CLOCK, WEATHER)])
async def test_a_required_tool_is_called(shared: Instance, tools: tuple[Tool, ...]) -> None:
    events = await events_of(shared, ask(tools=tools, tool_choice="required", parallel_tool_calls=False))
    (start,) = [event for event in events if isinstance(event, ToolCallStart)]
    arguments = json.loads("".join(e.arguments for e in events if isinstance(e, ToolCallDelta)))
    assert start.name in {tool.name for tool in tools}
    assert start.index == 0
    assert start.id
    if start.name == WEATHER.name:
        assert arguments["city"] in {"Oslo", "Lima"}
    assert reasons(events) == [FinishReason.TOOL_CALLS]
    assert not any(isinstance(event, TextDelta) for event in events)


async def test_ids_of_calls_are_unique(shared: Instance) -> None:
    asked = ask(tools=(WEATHER,), tool_choice="required", parallel_tool_calls=False)
    ids = [
        event.id
        for _ in range(2)
        for event in await events_of(shared, asked)
        if isinstance(event, ToolCallStart)
    ]
    assert len(set(ids)) == len(ids) == 2


async def test_no_tool_is_called_when_none_may_be(shared: Instance) -> None:
    events = await events_of(shared, ask(tools=(WEATHER,), tool_choice="none"))
    assert not any(isinstance(event, ToolCallStart | ToolCallDelta) for event in events)
    assert set(reasons(events)) <= {FinishReason.STOP, FinishReason.LENGTH}


async def test_with_a_free_choice_the_answer_is_text_or_a_whole_call(shared: Instance) -> None:
    events = await events_of(shared, ask(tools=(WEATHER,)))
    called = any(isinstance(event, ToolCallStart) for event in events)
    if called and reasons(events) == [FinishReason.TOOL_CALLS]:
        json.loads("".join(event.arguments for event in events if isinstance(event, ToolCallDelta)))
    else:
        assert "tool_call" not in "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_results_of_tools_are_part_of_the_prompt(shared: Instance) -> None:
    question = Message(role="user", content="What is the weather in Oslo?")
    call = Message(role="assistant", tool_calls=(ToolCall("call_1", "get_weather", '{"city": "Oslo"}'),))
    result = Message(role="tool", tool_call_id="call_1", content="sunny and 21 degrees in the whole town")
    short = await prompt_tokens(shared, ask(question, call))
    assert await prompt_tokens(shared, ask(question, call, result)) >= short + 7
    assert await events_of(shared, ask(question, call, result, tools=(WEATHER,), tool_choice="none"))


async def test_a_grammar_is_enforced_or_refused(shared: Instance) -> None:
    if not can(shared, Capability.GRAMMAR):
        with pytest.raises(BadRequest):
            await events_of(shared, request("Yes?", constraint=Grammar('root ::= "yes" | "no"')))
        return
    events = await events_of(shared, request("Yes?", constraint=Grammar('root ::= "yes" | "no"')))
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) in {"yes", "no"}
    assert reasons(events) == [FinishReason.STOP]


@pytest.mark.parametrize("gbnf", ["root ::= missing", "nonsense", 'root ::= "unclosed', 'other ::= "x"'])
async def test_a_bad_grammar_fails_alone(shared: Instance, gbnf: str) -> None:
    with pytest.raises(BadRequest):
        await events_of(shared, request("Yes?", constraint=Grammar(gbnf), max_tokens=4))
    assert await events_of(shared, request("Hello", max_tokens=1))
