"""Each family from end to end: its template shows tools, calls and results; what it shows of a call, its parser reads back."""

from __future__ import annotations

import json

import pytest

from localllm.core.generation import (
    ChatPrompt,
    Event,
    Message,
    TextDelta,
    Tool,
    ToolCall,
    ToolCallDelta,
    ToolCallStart,
)
from localllm.engines.llama_cpp.parsers import Family, family_of, make_parser
from localllm.engines.llama_cpp.template import ChatTemplate
from tests.support.family_templates import FAMILY_TEMPLATES

WEATHER = Tool(
    name="get_weather",
    description="The weather",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
SYSTEM = Message(role="system", content="Be exact.")
ASKED = Message(role="user", content="Weather in Oslo?")
CALLED = Message(
    role="assistant",
    content="",
    tool_calls=(ToolCall(id="call_1", name="get_weather", arguments='{"city": "Oslo"}'),),
)
RESULT = Message(role="tool", content="3 degrees", tool_call_id="call_1")
FAMILIES = list(FAMILY_TEMPLATES)
MARKED = [f for f in FAMILIES if f is not Family.GENERIC]


def template_of(family: Family) -> ChatTemplate:
    return ChatTemplate(FAMILY_TEMPLATES[family], bos_token="<bos>", eos_token="<eos>")


@pytest.mark.parametrize("family", FAMILIES)
def test_the_family_is_told_by_its_template(family: Family) -> None:
    assert family_of(FAMILY_TEMPLATES[family]) is family


@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_that_was_said_is_lost(family: Family) -> None:
    template = template_of(family)
    prompt = ChatPrompt(messages=(SYSTEM, ASKED, CALLED, RESULT), tools=(WEATHER,))
    text = template.render(prompt).text
    for said in ("Be exact.", "Weather in Oslo?", "get_weather", "Oslo", "3 degrees"):
        assert said in text
    assert text.index("Weather in Oslo?") < text.rindex("get_weather") < text.index("3 degrees")


@pytest.mark.parametrize("family", MARKED)
@pytest.mark.parametrize("piece", [1, 3, 1000])
def test_the_parser_reads_back_what_the_template_wrote(family: Family, piece: int) -> None:
    template = template_of(family)
    before = template.render(ChatPrompt(messages=(ASKED,), tools=(WEATHER,))).text
    after = template.render(
        ChatPrompt(
            messages=(ASKED, CALLED), tools=(WEATHER,), template_arguments={"add_generation_prompt": False}
        )
    ).text
    # the model's part: from where the prompt left off, less a think block that a past turn no longer shows
    written = after[len(before.removesuffix("<think>\n")) :]
    parser = make_parser(family, (WEATHER,))
    events: list[Event] = []
    for at in range(0, len(written), piece):
        events += parser.feed(written[at : at + piece])
    events += parser.finish()
    starts = [e for e in events if isinstance(e, ToolCallStart)]
    arguments = "".join(e.arguments for e in events if isinstance(e, ToolCallDelta))
    assert [s.name for s in starts] == ["get_weather"]
    assert json.loads(arguments) == {"city": "Oslo"}
    assert not any("get_weather" in e.text for e in events if isinstance(e, TextDelta))


def test_a_prompt_that_opens_a_thought_says_so() -> None:
    assert template_of(Family.DEEPSEEK).render(ChatPrompt(messages=(ASKED,))).opens_reasoning
    qwen = template_of(Family.HERMES)
    assert qwen.render(ChatPrompt(messages=(ASKED,), reasoning_effort="high")).opens_reasoning
    assert not qwen.render(ChatPrompt(messages=(ASKED,), reasoning_effort="none")).opens_reasoning


def test_effort_reaches_harmony() -> None:
    assert (
        "Reasoning: low"
        in template_of(Family.HARMONY).render(ChatPrompt(messages=(ASKED,), reasoning_effort="low")).text
    )


def test_a_system_role_that_a_template_refuses_goes_into_the_first_turn() -> None:
    text = template_of(Family.GENERIC).render(ChatPrompt(messages=(SYSTEM, ASKED))).text
    assert (
        text == "<bos><start_of_turn>user\nBe exact.\n\nWeather in Oslo?<end_of_turn>\n<start_of_turn>model\n"
    )
