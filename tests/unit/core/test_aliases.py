from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.aliases import (
    MAX_HISTORY,
    Alias,
    Question,
    Rule,
    Share,
    Targets,
    Version,
    looks_like_code,
    question_of,
    route,
)
from localllm.core.generation import (
    ChatPrompt,
    GenerationRequest,
    ImagePart,
    Message,
    TextPart,
    TokenPrompt,
    Tool,
)

SPLIT = Targets(shares=(Share(model="a", weight=90), Share(model="b", weight=10)))


def only(model: str, **fields: Any) -> Targets:
    return Targets(shares=(Share(model=model),), **fields)


def test_shares_are_kept_to_the_request() -> None:
    drawn = Counter(route(SPLIT, Question(text=""), step / 1000).models[0] for step in range(1000))
    assert drawn == {"a": 900, "b": 100}


@given(st.floats(0, 1, exclude_max=True), st.lists(st.integers(1, 1000), min_size=1, max_size=8))
def test_every_draw_gives_a_share(draw: float, weights: list[int]) -> None:
    shares = tuple(Share(model=str(at), weight=weight) for at, weight in enumerate(weights))
    assert int(route(Targets(shares=shares), Question(text=""), draw).models[0]) < len(weights)


@pytest.mark.parametrize(
    ("rule", "text", "tools", "met"),
    [
        ({"min_characters": 5}, "12345", False, True),
        ({"min_characters": 5}, "1234", False, False),
        ({"max_characters": 5}, "123456", False, False),
        ({"tools": True}, "", True, True),
        ({"tools": False}, "", True, False),
        ({"code": True}, "```py\nx\n```", False, True),
        ({"code": False}, "plain words", False, True),
        ({"keywords": ("proof", "theorem")}, "A THEOREM of sorts", False, True),
        ({"keywords": ("proof",)}, "nothing", False, False),
        ({"min_characters": 3, "keywords": ("x",)}, "x", False, False),
        ({}, "", False, True),
    ],
)
def test_a_rule_is_met_when_all_it_says_holds(
    rule: dict[str, Any], text: str, tools: bool, met: bool
) -> None:
    targets = only("easy", rules=(Rule(model="hard", **rule),))
    found = route(targets, Question(text=text, tools=tools), 0.5)
    assert found.models == (("hard",) if met else ("easy",))
    assert found.reason.startswith("rule 1: ") is met


def test_the_first_rule_wins_and_fallbacks_follow_once() -> None:
    rules = (Rule(model="hard", min_characters=1), Rule(model="never"))
    targets = only("easy", rules=rules, fallback=("hard", "far"), slow_after_seconds=2.0)
    found = route(targets, Question(text="x"), 0.0)
    assert found.models == ("hard", "far")
    assert found.slow_after_seconds == 2.0
    assert targets.models() == ("easy", "hard", "never", "far")


def test_changes_are_remembered_and_taken_back_one_by_one() -> None:
    alias = Alias(name="n", current=Version(set_at=1, targets=only("a")))
    assert alias.changed(only("a"), 2) is alias
    twice = alias.changed(only("b"), 2).changed(SPLIT, 3)
    assert twice.heaviest() == "a"
    once = twice.rolled_back()
    assert once is not None and once.heaviest() == "b"
    first = once.rolled_back()
    assert first == alias and first.rolled_back() is None


def test_history_has_an_end() -> None:
    alias = Alias(name="n", current=Version(set_at=0, targets=only("0")))
    for step in range(1, MAX_HISTORY + 10):
        alias = alias.changed(only(str(step)), step)
    assert len(alias.history) == MAX_HISTORY


def test_what_is_looked_at_is_what_people_wrote() -> None:
    picture = Message(role="user", content=(TextPart("see"), ImagePart(b"", "image/png")))
    prompt = ChatPrompt(messages=(Message(role="system", content="be"), picture), tools=(Tool("t"),))
    assert question_of(GenerationRequest(request_id="r", prompt=prompt)) == Question(
        text="be\nsee\n", tools=True
    )
    assert question_of(GenerationRequest(request_id="r", prompt=TokenPrompt((1,)))) == Question(text="")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("def f(x):\n    return x\nimport os", True),
        ("int main() {\n  return 0;\n}", True),
        ("Please import the goods; thank you", False),
        ("", False),
    ],
)
def test_code_is_told_by_its_lines(text: str, code: bool) -> None:
    assert looks_like_code(text) is code


@pytest.mark.parametrize(
    "text", ['{"shares": []}', '{"shares": [{"model": "a", "weight": 0}]}', '{"share": 1}']
)
def test_a_form_that_leads_nowhere_is_refused(text: str) -> None:
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(text, type=Targets)
