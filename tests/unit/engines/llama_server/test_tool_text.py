from __future__ import annotations

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.generation import (
    Event,
    Message,
    TextDelta,
    TextPart,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
)
from localllm.engines.llama_server.tool_text import (
    ToolTextReader,
    describe_tools,
    tell_results_as_text,
    tool_call_schema,
)

WEATHER = Tool("get_weather", "The weather", {"type": "object", "properties": {"city": {"type": "string"}}})
CALL = '{"name": "get_weather", "arguments": {"city": "a } \\" b", "days": [1, {"x": 2}]}}'


def read(pieces: list[str]) -> tuple[str, list[str], str]:
    """(text, names called, arguments) of an answer in these pieces."""
    reader = ToolTextReader(["get_weather"], 0)
    events: list[Event] = [event for piece in pieces for event in reader.feed(piece)]
    events += reader.close()
    text = "".join(event.text for event in events if isinstance(event, TextDelta))
    names = [event.name for event in events if isinstance(event, ToolCallStart)]
    return text, names, "".join(e.arguments for e in events if isinstance(e, ToolCallDelta))


@given(st.lists(st.integers(0, len(CALL)), max_size=8))
def test_a_call_is_found_however_it_is_cut(cuts: list[int]) -> None:
    at = [0, *sorted(cuts), len(CALL)]
    text, names, arguments = read([CALL[a:b] for a, b in itertools.pairwise(at)])
    assert (text, names) == ("", ["get_weather"])
    assert json.loads(arguments) == json.loads(CALL)["arguments"]


@pytest.mark.parametrize(
    "said",
    [
        "Plain text",
        "{ not a call",
        '{"name": "other", "arguments": {}}',
        '{"name": 5}',
        '{"answer": 1}',
        "",
        '{"name": "get_weather"',
        '{"name": "' + "x" * 600,
    ],
)
def test_everything_else_is_text_and_complete(said: str) -> None:
    assert read(list(said)) == (said, [], "")


def test_plain_text_is_not_held_back() -> None:
    reader = ToolTextReader(["get_weather"], 0)
    assert reader.feed("Hello") == [TextDelta("Hello", 0)]
    assert reader.feed(' {"name"') == [TextDelta(' {"name"', 0)]


def test_the_schema_of_a_call_names_the_tool_and_its_parameters() -> None:
    one = tool_call_schema([WEATHER])
    assert one["properties"] == {"name": {"const": "get_weather"}, "arguments": WEATHER.parameters}
    both = tool_call_schema([WEATHER, Tool("clock")])
    assert isinstance(both["anyOf"], list)
    assert both["anyOf"][1]["properties"]["arguments"] == {"type": "object"}


def test_tools_are_told_in_the_system_message() -> None:
    user = Message(role="user", content="Hi")
    (system, same) = describe_tools([user], [WEATHER], required=True)
    assert system.role == "system"
    assert "get_weather" in str(system.content)
    assert same is user
    (joined, _) = describe_tools(
        [Message(role="system", content="Be brief."), user], [WEATHER], required=False
    )
    assert str(joined.content).startswith("Be brief.\n\n")


def test_calls_and_results_become_plain_messages() -> None:
    messages = (
        Message(role="user", content="Weather?"),
        Message(role="assistant", tool_calls=(ToolCall("c1", "get_weather", '{"city": "Oslo"}'),)),
        Message(role="tool", tool_call_id="c1", content=(TextPart("sunny"),)),
    )
    told = tell_results_as_text(messages)
    assert [message.role for message in told] == ["user", "assistant", "user"]
    assert told[1].content == '{"name": "get_weather", "arguments": {"city": "Oslo"}}'
    assert told[2].content == "Result of get_weather: sunny"
