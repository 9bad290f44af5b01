"""Grammars: limits, the throw-away probe, and that a forced call is what the family's parser reads."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from localllm.core.errors import BadGrammar
from localllm.core.generation import Grammar, JsonObject, JsonSchema, Tool
from localllm.engines.llama_cpp.constraint import GRAMMAR_BYTES, check_grammar, forced_call, to_gbnf
from localllm.engines.llama_cpp.grammar_probe import GrammarProbe
from localllm.engines.llama_cpp.parsers import Family

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (extra `llama-cpp`)")
pytestmark = pytest.mark.llama_cpp

TOOLS = (
    Tool(
        name="get_weather",
        parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    ),
    Tool(name='o"dd'),
)


@pytest.fixture(scope="module")
def probe() -> Iterator[GrammarProbe]:
    probe = GrammarProbe()
    yield probe
    probe.close()


def test_schemas_and_objects_become_grammars_that_compile(probe: GrammarProbe) -> None:
    probe.check(to_gbnf(JsonObject()))
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^[a-z]+$"}, "b": {"$ref": "#/$defs/n"}},
        "required": ["a"],
        "$defs": {"n": {"type": "integer", "minimum": 3}},
    }
    probe.check(to_gbnf(JsonSchema(schema=schema)))


@pytest.mark.parametrize("family", list(Family))
@pytest.mark.parametrize("template", ["", "[ARGS] ```json"], ids=["newer", "older"])
@pytest.mark.parametrize("thinking", [False, True])
def test_a_forced_call_compiles_for_every_family(
    family: Family, template: str, thinking: bool, probe: GrammarProbe
) -> None:
    for parallel in (False, True):
        probe.check(
            forced_call(family, TOOLS, template=template, parallel=parallel, opens_reasoning=thinking)
        )


@pytest.mark.parametrize(
    ("gbnf", "says"),
    [
        ("", "no rule named root"),
        ('x ::= "a"', "no rule named root"),
        ('root ::= "a"{0,99999}', "more than 1000 times"),
        ('root ::= "a"{5,2}', "ends before it begins"),
        ("root ::= " + "(" * 65 + '"a"' + ")" * 65, "deeper than 64"),
        ('root ::= "' + "a" * GRAMMAR_BYTES + '"', "limit"),
        ('root ::= "\0"', "no text"),
        ('root ::= "\ud800"', "no text"),
    ],
)
def test_the_limits_hold_before_llama_cpp_sees_it(gbnf: str, says: str) -> None:
    with pytest.raises(BadGrammar, match=says):
        check_grammar(gbnf)


def test_brackets_inside_literals_do_not_count_as_nesting() -> None:
    check_grammar('root ::= "' + "(" * 200 + '" [({] "\\"("')


@pytest.mark.parametrize(
    "gbnf", ['root ::= root "a"', "root ::= ((", "root ::= [a", "root ::= nobody", 'root ::= "a']
)
def test_the_probe_refuses_what_does_not_compile(gbnf: str, probe: GrammarProbe) -> None:
    with pytest.raises(BadGrammar, match="cannot compile"):
        probe.check(gbnf)
    probe.check('root ::= "next one is fine"')


def test_a_crash_of_the_probe_is_an_answer_and_the_next_is_served() -> None:
    dies = "import sys\nfor line in sys.stdin:\n    if 'bomb' in line: raise SystemExit(139)\n    print('ok', flush=True)"
    probe = GrammarProbe([sys.executable, "-c", dies])
    try:
        with pytest.raises(BadGrammar, match="crashes"):
            probe.check("root ::= bomb")
        probe.check("root ::= fine")
        with pytest.raises(BadGrammar, match="crashes"):  # remembered, not tried again
            probe.check("root ::= bomb")
    finally:
        probe.close()


def test_a_hanging_probe_is_ended() -> None:
    probe = GrammarProbe([sys.executable, "-c", "import sys; sys.stdin.read()"], seconds=0.2)
    try:
        with pytest.raises(BadGrammar, match="took more than"):
            probe.check("root ::= slow")
    finally:
        probe.close()


def test_a_schema_that_cannot_be_expressed_names_its_field() -> None:
    deep: dict[str, object] = {"type": "string"}
    for _ in range(70):
        deep = {"type": "array", "items": deep}
    with pytest.raises(BadGrammar, match="nested deeper") as caught:
        to_gbnf(JsonSchema(schema=deep))
    assert caught.value.param == "response_format"
    with pytest.raises(BadGrammar):
        to_gbnf(JsonSchema(schema=json.loads('{"$ref": "https://example.invalid/x.json"}')))
    with pytest.raises(BadGrammar):
        to_gbnf(Grammar("root"))
