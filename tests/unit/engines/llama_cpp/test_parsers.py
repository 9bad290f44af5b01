"""Each family's answers, as the models write them, cut at every place a token could end."""

from __future__ import annotations

import itertools
import json

import pytest

from localllm.core.generation import Event, ReasoningDelta, TextDelta, Tool, ToolCallDelta, ToolCallStart
from localllm.engines.llama_cpp.parsers import Family, family_of, make_parser

WEATHER = Tool(
    name="get_weather",
    description="The weather somewhere",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
    },
)
TOOLS = (WEATHER, Tool(name="now"))


class Answer:  # noqa: PLW1641 - only compared
    """What a client would have put together from the events."""

    def __init__(self, events: list[Event]) -> None:
        self.text = "".join(e.text for e in events if isinstance(e, TextDelta))
        self.reasoning = "".join(e.text for e in events if isinstance(e, ReasoningDelta))
        self.calls: list[tuple[str, object]] = []
        starts = [e for e in events if isinstance(e, ToolCallStart)]
        assert [e.index for e in starts] == list(range(len(starts)))
        assert len({e.id for e in starts}) == len(starts)
        for start in starts:
            written = "".join(
                e.arguments for e in events if isinstance(e, ToolCallDelta) and e.index == start.index
            )
            self.calls.append((start.name, json.loads(written)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Answer) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"Answer({vars(self)})"


def parse(
    family: Family, text: str, *, piece: int, tools: tuple[Tool, ...] = TOOLS, thinking: bool = False
) -> Answer:
    ids = map("call_{}".format, itertools.count())
    parser = make_parser(family, tools, opens_reasoning=thinking, new_id=lambda: next(ids))
    events: list[Event] = []
    for at in range(0, len(text), piece):
        events += parser.feed(text[at : at + piece])
    answer = Answer(events + parser.finish())
    assert parser.calls == len(answer.calls)
    return answer


LONDON = ("get_weather", {"city": "London"})
BRACES = ("get_weather", {"city": 'a "}{\\" b', "days": 3})

CASES = {
    "hermes": (
        Family.HERMES,
        'Let me look.\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "London"}}\n</tool_call>',
        "Let me look.",
        [LONDON],
    ),
    "hermes two": (
        Family.HERMES,
        '<tool_call>{"name": "now", "arguments": {}}</tool_call>\n'
        '<tool_call>{"arguments": {"city": "a \\"}{\\\\\\" b", "days": 3}, "name": "get_weather"}</tool_call>',
        "",
        [("now", {}), BRACES],
    ),
    "hermes arguments as text": (
        Family.HERMES,
        '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"London\\"}"}</tool_call>',
        "",
        [LONDON],
    ),
    "hermes without arguments": (Family.HERMES, '<tool_call>{"name": "now"}</tool_call>', "", [("now", {})]),
    "qwen3-coder": (
        Family.HERMES,
        "<tool_call>\n<function=get_weather>\n<parameter=city>\nLondon\n</parameter>\n<parameter=days>\n3\n"
        "</parameter>\n</function>\n</tool_call>",
        "",
        [("get_weather", {"city": "London", "days": 3})],
    ),
    "llama bare": (
        Family.LLAMA3,
        '{"name": "get_weather", "parameters": {"city": "London"}}',
        "",
        [LONDON],
    ),
    "llama typed, several": (
        Family.LLAMA3,
        '<|python_tag|>{"type": "function", "name": "now", "parameters": {}}; '
        '{"type": "function", "name": "get_weather", "parameters": {"city": "London"}}',
        "",
        [("now", {}), LONDON],
    ),
    "llama built-in": (
        Family.LLAMA3,
        '<|python_tag|>brave_search.call(query="a, b")',
        "",
        [("brave_search", {"query": "a, b"})],
    ),
    "llama text that begins with a brace": (
        Family.LLAMA3,
        '{"city": "London"} is JSON.',
        '{"city": "London"} is JSON.',
        [],
    ),
    "mistral array": (
        Family.MISTRAL,
        '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "London"}, "id": "abcdefghi"}, '
        '{"name": "now", "arguments": {}}]',
        "",
        [LONDON, ("now", {})],
    ),
    "mistral named": (
        Family.MISTRAL,
        'So:[TOOL_CALLS]get_weather[ARGS]{"city": "London"}[TOOL_CALLS]now[CALL_ID]123456789[ARGS]{}',
        "So:",
        [LONDON, ("now", {})],
    ),
    "granite": (
        Family.GRANITE,
        '<|tool_call|>[{"name": "get_weather", "arguments": {"city": "London"}}]',
        "",
        [LONDON],
    ),
    "deepseek r1": (
        Family.DEEPSEEK,
        "One moment.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n"
        '{"city": "London"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n'
        "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "One moment.",
        [LONDON, ("now", {})],
    ),
    "deepseek v3.1": (
        Family.DEEPSEEK,
        '<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{"city": "London"}'
        "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
        [LONDON],
    ),
    "function gemma": (
        Family.GEMMA,
        "<start_function_call>call:get_weather{city:<escape>London<escape>,days:3}<end_function_call>",
        "",
        [("get_weather", {"city": "London", "days": 3})],
    ),
    "gemma 4": (
        Family.GEMMA,
        '<|tool_call>call:get_weather{city:<|"|>Paris, France<|"|>,when:[1,<|"|>x<|"|>],at:{a:true}}<tool_call|>',
        "",
        [("get_weather", {"city": "Paris, France", "when": [1, "x"], "at": {"a": True}})],
    ),
    "gpt-oss": (
        Family.HARMONY,
        "<|channel|>analysis<|message|>Thinking.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
        '<|constrain|>json<|message|>{"city": "London"}<|call|>',
        "",
        [LONDON],
    ),
    "gpt-oss final": (
        Family.HARMONY,
        "<|channel|>analysis<|message|>Thinking.<|end|><|start|>assistant<|channel|>final<|message|>Hello <b>.<|return|>",
        "Hello <b>.",
        [],
    ),
    "generic": (
        Family.GENERIC,
        '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        "",
        [("now", {})],
    ),
}


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_family_reads_its_own_form_however_it_is_cut(case: str, piece: int) -> None:
    family, written, text, calls = CASES[case]
    answer = parse(family, written, piece=piece)
    assert answer.text == text
    assert answer.calls == calls


@pytest.mark.parametrize("piece", [1, 4, 1000])
@pytest.mark.parametrize(
    "family", [f for f in Family if f not in (Family.HARMONY, Family.GEMMA, Family.MISTRAL)]
)
def test_think_blocks_become_reasoning(family: Family, piece: int) -> None:
    written = "<think>\nFirst, look.\nThen say.\n</think>\n\nIt rains < 3 times."
    answer = parse(family, written, piece=piece)
    assert answer.reasoning == "First, look.\nThen say."
    assert answer.text == "It rains < 3 times."
    already_open = parse(family, written.removeprefix("<think>\n"), piece=piece, thinking=True)
    assert already_open == answer


@pytest.mark.parametrize(
    ("family", "written"),
    [
        (Family.MISTRAL, "[THINK]Hm.[/THINK]Yes."),
        (Family.GEMMA, "<|channel>thought\nHm.<channel|>Yes."),
        (
            Family.HARMONY,
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
        ),
    ],
)
def test_families_with_their_own_think_marks(family: Family, written: str) -> None:
    for piece in (1, 5, 1000):
        answer = parse(family, written, piece=piece)
        assert (answer.reasoning, answer.text) == ("Hm.", "Yes.")


@pytest.mark.parametrize(
    "family", [f for f in Family if f is not Family.HARMONY]
)  # its marks are its framing
def test_without_tools_a_call_marker_is_text(family: Family) -> None:
    answer = parse(family, "Write <tool_call>{}</tool_call> or [TOOL_CALLS].", piece=1, tools=())
    assert answer.text == "Write <tool_call>{}</tool_call> or [TOOL_CALLS]."
    assert answer.calls == []


def test_a_call_that_is_no_call_is_given_back_as_text() -> None:
    answer = parse(Family.HERMES, "<tool_call>sorry, I cannot</tool_call>", piece=3)
    assert answer.text == "sorry, I cannot"
    assert answer.calls == []


def test_arguments_are_streamed_before_the_call_is_complete() -> None:
    parser = make_parser(Family.HERMES, TOOLS)
    events = parser.feed('<tool_call>{"name": "get_weather", "arguments": {"city": "Lon')
    assert [type(e) for e in events] == [ToolCallStart, ToolCallDelta]
    assert isinstance(events[1], ToolCallDelta)
    assert events[1].arguments == '{"city": "Lon'


def test_only_what_may_become_a_marker_is_held_back() -> None:
    parser = make_parser(Family.HERMES, TOOLS)
    assert parser.feed("a <to") == [TextDelta("a")]
    assert parser.feed("p> b") == [TextDelta(" <top> b")]


def test_a_cut_off_call_keeps_what_was_written() -> None:
    parser = make_parser(Family.HERMES, TOOLS)
    events = parser.feed('<tool_call>{"name": "get_weather", "arguments": {"city": "Lo') + parser.finish()
    written = "".join(e.arguments for e in events if isinstance(e, ToolCallDelta))
    assert written == '{"city": "Lo'


@pytest.mark.parametrize(
    ("template", "family"),
    [
        ("{{ '<|channel|>final<|message|>' }}", Family.HARMONY),
        ("{{ '<｜tool▁calls▁begin｜>' }}", Family.DEEPSEEK),
        ("{{ '[TOOL_CALLS]' }}", Family.MISTRAL),
        ("{{ '<start_function_call>' }}", Family.GEMMA),
        ("{{ '<tool_call>' }}", Family.HERMES),
        ("{{ '<|tool_call|>' }}", Family.GRANITE),
        ('<|start_header_id|> {"name": x, "parameters": y}', Family.LLAMA3),
        ("<start_of_turn>user", Family.GENERIC),
    ],
)
def test_the_template_gives_the_family_away(template: str, family: Family) -> None:
    assert family_of(template) is family
