"""Schemas made fit for a grammar, and the check of what it cannot hold."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localllm.api.v1.guard import AnswerGuard, SchemaMismatch
from localllm.api.v1.schema_check import violation
from localllm.api.v1.structured import loosened, prepare
from localllm.core.errors import BadRequest
from localllm.core.generation import Finished, FinishReason, TextDelta

ANY = {"type": ["object", "array", "string", "number", "boolean", "null"]}


def test_a_schema_that_a_grammar_holds_needs_no_check() -> None:
    schema: dict[str, object] = {
        "type": "object",
        "title": "Answer",
        "properties": {
            "n": {"type": "integer", "minimum": 1, "description": "a number"},
            "kind": {"enum": ["a", "b"]},
            "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
            "when": {"type": "string", "format": "date-time"},
            "either": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/part"}]},
        },
        "required": ["n"],
        "additionalProperties": False,
        "$defs": {"part": {"type": "object", "properties": {"again": {"$ref": "#/$defs/part"}}}},
    }
    prepared = prepare(schema, "p")
    assert prepared.check_after == ()
    assert "title" not in prepared.schema
    properties = prepared.schema["properties"]
    assert isinstance(properties, dict)
    assert properties["n"] == {"type": "integer", "minimum": 1}


def test_the_request_keeps_its_own_schema() -> None:
    schema: dict[str, object] = {"type": "array", "uniqueItems": True, "title": "x"}
    prepare(schema, "p")
    assert schema == {"type": "array", "uniqueItems": True, "title": "x"}


@pytest.mark.parametrize("schema", [{"title": "anything"}, {"x-order": 1}, {}, {"default": 1}])
def test_a_schema_without_a_type_means_any_value(schema: dict[str, object]) -> None:
    assert prepare(schema, "p").schema == ANY


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array", "uniqueItems": True},
        {"type": "object", "minProperties": 1},
        {"type": "number", "minimum": 0.5},
        {"type": "integer", "multipleOf": 3},
        {"oneOf": [{"type": "integer"}, {"type": "string"}]},
        {"not": {"type": "null"}},
        {"type": "string", "format": "email"},
        {"type": "string", "maxLength": 5000},
        {"type": "object", "properties": {"a": {"type": "string"}}, "anyOf": [{"required": ["a"]}]},
        {"type": "string", "pattern": "^a+$", "minLength": 3},
        {"type": "integer", "enum": list(range(300))},
        {"anyOf": [{"const": number} for number in range(300)]},
    ],
)
def test_what_the_grammar_may_not_hold_is_remembered(schema: dict[str, object]) -> None:
    assert prepare(schema, "p").check_after


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "frog"},
        {"enum": []},
        {"anyOf": []},
        {"properties": []},
        {"required": "a"},
        {"minLength": -1},
        {"minimum": "x"},
        {"$ref": "https://example.com/schema.json"},
        {"$ref": "#/$defs/missing"},
        {"$ref": "#"},
        {"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"},
        {"patternProperties": {"^a": {}}},
        {"type": "string", "pattern": "(?=x)"},
        {"type": "string", "pattern": 5},
        {"items": 5},
        {"not": {"pattern": "^a$"}},
        {"contains": {"properties": {"a": {"pattern": "^a$"}}}},
        {"not": {"required": [["a"]]}},
        {"$defs": {"a": {"pattern": "^a$"}}, "not": {"$ref": "#/$defs/a"}},
        {"type": [["string"]]},
        {"dependencies": {"a": ["b"]}},
        {"multipleOf": 0},
        {"uniqueItems": "yes"},
        {"minProperties": -1},
        {"dependentRequired": {"a": "b"}},
    ],
)
def test_a_schema_that_cannot_be_kept_is_refused(schema: dict[str, object]) -> None:
    with pytest.raises(BadRequest) as refused:
        prepare(schema, "response_format.json_schema.schema")
    assert refused.value.param == "response_format.json_schema.schema"


def test_size_is_bounded() -> None:
    deep: dict[str, object] = {"type": "string"}
    for _ in range(80):
        deep = {"type": "array", "items": deep}
    with pytest.raises(BadRequest, match="deeper"):
        prepare(deep, "p")
    with pytest.raises(BadRequest, match="parts"):
        prepare({"properties": {str(n): {"type": "null"} for n in range(30_000)}}, "p")


def test_a_tools_parameters_only_lose_what_no_grammar_takes() -> None:
    parameters: dict[str, object] = {
        "type": "object",
        "properties": {"id": {"type": "string", "pattern": r"(?!x)", "description": "which"}},
    }
    assert loosened(parameters) == {"type": "object", "properties": {"id": {"type": "string"}}}


# ---------------------------------------------------------------- the check


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "integer"}, [1, 2.0], [1.5, "1", True, None]),
        ({"type": ["string", "null"]}, ["", None], [0, []]),
        ({"const": {"a": [1]}}, [{"a": [1.0]}], [{"a": [True]}]),
        ({"enum": [1, "a"]}, [1.0, "a"], [True, "b"]),
        ({"minLength": 2, "maxLength": 3}, ["ab", 5], ["a", "abcd"]),
        ({"minimum": 1, "exclusiveMaximum": 2}, [1, 1.9], [0.9, 2]),
        ({"multipleOf": 0.1}, [0.3, 1], [0.35]),
        ({"uniqueItems": True}, [[1, 2, "1"]], [[1, 1.0]]),
        ({"contains": {"type": "null"}, "maxContains": 1}, [[1, None]], [[1], [None, None]]),
        ({"prefixItems": [{"type": "null"}], "items": {"type": "integer"}}, [[None, 1]], [[1], [None, "a"]]),
        ({"minItems": 1, "maxItems": 2}, [[1]], [[], [1, 2, 3]]),
        ({"required": ["a"], "maxProperties": 1}, [{"a": 1}], [{}, {"a": 1, "b": 2}]),
        (
            {"properties": {"a": {"type": "null"}}, "additionalProperties": False},
            [{"a": None}],
            [{"b": 1}, {"a": 1}],
        ),
        ({"propertyNames": {"maxLength": 1}}, [{"a": 1}], [{"ab": 1}]),
        ({"dependentRequired": {"a": ["b"]}}, [{"a": 1, "b": 1}, {"b": 1}], [{"a": 1}]),
        ({"dependentSchemas": {"a": {"required": ["b"]}}}, [{"b": 1}], [{"a": 1}]),
        ({"oneOf": [{"type": "integer"}, {"minimum": 5}]}, [1, 5.5], [5, 6]),
        ({"oneOf": [{"pattern": "^a$"}, {"pattern": "^b$"}, {"type": "null"}]}, ["a", None], []),
        ({"allOf": [{"minimum": 1}, {"maximum": 2}]}, [1], [3]),
        ({"not": {"type": "string"}}, [1], ["a"]),
        ({"if": {"type": "string"}, "then": {"minLength": 1}, "else": {"minimum": 1}}, ["a", 1], ["", 0]),
        (
            {"$defs": {"n": {"items": {"$ref": "#/$defs/n"}, "type": "array"}}, "$ref": "#/$defs/n"},
            [[[]]],
            [[1]],
        ),
        ({"format": "email"}, ["a@b.c"], ["ab", "a @b"]),
        ({"format": "ipv4"}, ["1.2.3.4"], ["1.2.3", "::1"]),
        ({"format": "uri"}, ["http://x"], ["x y", "x"]),
        ({"format": "color"}, ["whatever"], []),
    ],
)
def test_violations(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert violation(value, schema) is None, value
    for value in bad:
        assert violation(value, schema) is not None, value


def test_a_check_that_explodes_is_given_up() -> None:
    schema: dict[str, object] = {"$defs": {"d0": {"type": "null"}}}
    definitions = schema["$defs"]
    assert isinstance(definitions, dict)
    for level in range(1, 60):
        reference = {"$ref": f"#/$defs/d{level - 1}"}
        definitions[f"d{level}"] = {"anyOf": [reference, reference]}
    problem = violation("x", {**schema, "$ref": "#/$defs/d59"})
    assert problem is not None


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)
keywords = st.sampled_from(
    [
        "type",
        "enum",
        "const",
        "properties",
        "required",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "not",
        "if",
        "then",
        "minLength",
        "maxItems",
        "pattern",
        "format",
        "$ref",
        "additionalProperties",
        "uniqueItems",
        "minimum",
        "multipleOf",
        "prefixItems",
        "contains",
        "dependentRequired",
        "propertyNames",
    ]
)


@settings(max_examples=300)
@given(st.dictionaries(keywords, json_values, max_size=4), json_values)
def test_any_object_is_a_schema_or_a_400(schema: dict[str, object], value: object) -> None:
    try:
        prepared = prepare(schema, "p")
    except BadRequest:
        return
    msgspec.json.encode(prepared.schema)
    violation(value, schema)


# ---------------------------------------------------------------- the guard


def test_the_guard_judges_each_choice_when_it_stops() -> None:
    guard = AnswerGuard({"type": "array", "uniqueItems": True}, 2)
    for text, choice in (("[1,", 0), ("[2", 1), ("2]", 0), (",2]", 1)):
        guard(TextDelta(text, choice))
    guard(Finished(FinishReason.STOP, 0))
    with pytest.raises(SchemaMismatch) as raised:
        guard(Finished(FinishReason.STOP, 1))
    assert raised.value.details["choice"] == 1


def test_the_guard_lets_a_cut_off_answer_be() -> None:
    guard = AnswerGuard({"type": "array"}, 1)
    guard(TextDelta("[1,"))
    guard(Finished(FinishReason.LENGTH))
