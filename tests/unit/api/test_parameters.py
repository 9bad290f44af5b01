"""Parameters that need more than a range."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.api.v1.parameters import (
    ignored_fields,
    keep_alive_seconds,
    max_tokens_of,
    sampling_of,
    stop_of,
    tier_of,
)
from localllm.api.v1.tools import normalise_tools
from localllm.core.errors import BadRequest, Unsupported
from localllm.core.generation import Tier
from localllm.core.openai import ChatRequest, SamplingFields


def sampling(**fields: Any) -> Any:
    return sampling_of(msgspec.convert(fields, SamplingFields))


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_seed_fits_llama_cpp_and_only_minus_one_is_random(seed: int) -> None:
    taken = sampling(seed=seed).seed
    assert (taken is None) == (seed == -1)
    assert taken is None or 0 <= taken < 2**32 - 1


def test_small_seeds_stay_what_they_are() -> None:
    assert [sampling(seed=seed).seed for seed in (0, 1, 42, None)] == [0, 1, 42, None]


def test_sampling_passes_through() -> None:
    taken = sampling(temperature=0.5, top_k=-1, min_p=0.1, mirostat=2, logit_bias={"5": -100, "7": 1.5})
    assert (taken.temperature, taken.top_k, taken.min_p, taken.mirostat) == (0.5, 0, 0.1, 2)
    assert taken.logit_bias == {5: -100.0, 7: 1.5}
    assert taken.top_p is None


def test_the_first_limit_that_is_set_wins() -> None:
    assert max_tokens_of(("a", None), ("b", 5)) == 5
    assert max_tokens_of(("a", 3), ("b", 0)) == 3
    assert max_tokens_of(("a", -1), ("b", 5)) is None
    assert max_tokens_of(("a", None), ("b", None)) is None
    with pytest.raises(BadRequest) as refused:
        max_tokens_of(("a", None), ("b", 0))
    assert refused.value.param == "b"


def test_stop_strings() -> None:
    assert stop_of(None) == stop_of([]) == ()
    assert stop_of("x") == ("x",)
    assert stop_of(["x", "y", "x"]) == ("x", "y")
    for bad in ("", [""], ["1", "2", "3", "4", "5"], "x" * 2000):
        with pytest.raises(BadRequest):
            stop_of(bad)


def test_tiers() -> None:
    assert tier_of(None) == tier_of("auto") == tier_of("default") == tier_of("scale") == Tier.DEFAULT
    assert tier_of("flex") == Tier.FLEX
    assert tier_of("priority") == tier_of("fast") == Tier.PRIORITY


def test_keep_alive_takes_ollamas_spelling() -> None:
    assert [keep_alive_seconds(v) for v in (None, 5.0, "30s", "5m", "2h", "90", "-1")] == [
        None, 5.0, 30, 300, 7200, 90, -1,
    ]  # fmt: skip
    for bad in ("", "m", "soon"):
        with pytest.raises(BadRequest):
            keep_alive_seconds(bad)


def test_ignored_fields() -> None:
    assert ignored_fields({"a": 1, "b": 2}, ["a"], strict=False) == ("b",)
    with pytest.raises(Unsupported) as refused:
        ignored_fields({"a": 1, "b": 2}, ["a"], strict=True)
    assert refused.value.param == "b"


# ---------------------------------------------------------------- tools


def tools(choice: Any = None, *names: str) -> tuple[list[str], str]:
    body = {
        "messages": [],
        "tools": [{"type": "function", "function": {"name": name}} for name in names],
        "tool_choice": choice,
    }
    fields = msgspec.convert(body, ChatRequest)
    taken, taken_choice = normalise_tools(fields.tools, fields.tool_choice)
    return [tool.name for tool in taken], taken_choice


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def test_tool_choices() -> None:
    assert tools(None, "a", "b") == (["a", "b"], "auto")
    assert tools("none", "a") == (["a"], "none")
    assert tools("required", "a") == (["a"], "required")
    assert tools(named("b"), "a", "b") == (["b"], "required")
    allowed = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [named("b")]}}
    assert tools(allowed, "a", "b") == (["b"], "auto")
    assert tools(None) == tools("auto") == tools("none") == ([], "none")


@pytest.mark.parametrize(
    ("choice", "names", "param"),
    [
        ("required", [], "tool_choice"),
        (named("x"), ["a"], "tool_choice.function.name"),
        (named("x"), [], "tool_choice.function.name"),
        (None, ["a", "b", "a"], "tools[2].function.name"),
    ],
)
def test_choices_that_cannot_be(choice: Any, names: list[str], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        tools(choice, *names)
    assert refused.value.param == param
