"""Where a request for an alias goes, and on to which model when the first cannot answer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from localllm.core.aliases import Rule, Share, Targets
from localllm.core.errors import BadRequest, EngineCrashed, GenerationFailed, LocalLLMError, ModelNotFound
from localllm.core.generation import Event, TextDelta
from localllm.service.aliases import Aliases
from localllm.service.pipeline import Call
from localllm.service.routed_pipeline import RoutedPipeline
from tests.support.script import Crash, Fail, Hang, Text
from tests.unit.service.conftest import Parts


@pytest.fixture
def aliases(parts: Parts, tmp_path: Path) -> Aliases:
    return Aliases(tmp_path / "aliases.json", parts.source, draw=lambda: 0.0)


@pytest.fixture
def pipeline(parts: Parts, aliases: Aliases) -> RoutedPipeline:
    return RoutedPipeline(parts.manager, parts.activity, aliases=aliases)


def to(model: str, **fields: Any) -> Targets:
    return Targets(shares=(Share(model=model),), **fields)


def served(call: Call) -> list[str]:
    """Filled with the models that are said to answer it."""
    models: list[str] = []
    call.on_served = models.append
    return models


async def ask(pipeline: RoutedPipeline, call: Call) -> str:
    events: list[Event] = [event async for event in pipeline.generate(call)]
    return "".join(event.text for event in events if isinstance(event, TextDelta))


async def test_a_model_by_its_own_name_is_not_routed(parts: Parts, pipeline: RoutedPipeline) -> None:
    call = parts.call("hello", model="b")
    by = served(call)
    await ask(pipeline, call)
    assert by == [] and parts.manager.loaded() == {"b"}


async def test_an_alias_goes_where_its_rules_say(
    parts: Parts, aliases: Aliases, pipeline: RoutedPipeline
) -> None:
    aliases.set("n", to("a", rules=(Rule(model="b", keywords=("proof",)),)))
    for text, model in (("hello", "a"), ("a proof", "b")):
        call = parts.call(text, model="n")
        by = served(call)
        await ask(pipeline, call)
        assert by == [model] and call.model == "n"


@pytest.mark.parametrize(
    "step", [Crash(exit_code=-6), Fail(GenerationFailed("it gave up"))], ids=["crash", "failure"]
)
async def test_the_next_model_answers_when_the_first_cannot(
    parts: Parts, aliases: Aliases, pipeline: RoutedPipeline, step: Any
) -> None:
    aliases.set("n", to("a", fallback=("b",)))
    parts.engine.enqueue(step)
    parts.engine.enqueue(Text("from the second"))
    call = parts.call("hello", model="n")
    by = served(call)
    assert await ask(pipeline, call) == "from the second"
    assert by == ["b"]


async def test_one_that_is_too_slow_is_left(parts: Parts, aliases: Aliases, pipeline: RoutedPipeline) -> None:
    aliases.set("n", to("a", fallback=("b",), slow_after_seconds=0.05))
    for model in ("a", "b"):  # so that the wait is for the answer, not for a load
        await ask(pipeline, parts.call("hello", model=model))
    parts.engine.enqueue(Hang())
    parts.engine.enqueue(Text("quick"))
    async with asyncio.timeout(5):
        assert await ask(pipeline, parts.call("hello", model="n")) == "quick"


async def test_an_answer_that_was_begun_is_never_begun_anew(
    parts: Parts, aliases: Aliases, pipeline: RoutedPipeline
) -> None:
    aliases.set("n", to("a", fallback=("b",)))
    parts.engine.enqueue(Text("One"), Crash(exit_code=-6))
    seen: list[Event] = []
    with pytest.raises(EngineCrashed):
        async for event in pipeline.generate(parts.call("hello", model="n")):
            seen.append(event)
    assert seen and len(parts.engine.requests) == 1


async def test_what_is_wrong_with_the_request_is_not_tried_elsewhere(
    parts: Parts, aliases: Aliases, pipeline: RoutedPipeline
) -> None:
    aliases.set("n", to("a", fallback=("b",)))
    parts.engine.enqueue(Fail(BadRequest("nonsense")))
    with pytest.raises(BadRequest):
        await ask(pipeline, parts.call("hello", model="n"))
    assert len(parts.engine.requests) == 1


async def test_the_last_ones_error_is_the_answer(
    parts: Parts, aliases: Aliases, pipeline: RoutedPipeline
) -> None:
    aliases.set("n", to("a", fallback=("b",)))
    for text in ("first", "second"):
        parts.engine.enqueue(Fail(GenerationFailed(text)))
    with pytest.raises(LocalLLMError, match="second"):
        await ask(pipeline, parts.call("hello", model="n"))


async def test_a_model_that_was_removed_is_passed_over(
    parts: Parts, aliases: Aliases, pipeline: RoutedPipeline
) -> None:
    aliases.set("n", to("a", fallback=("b",)))
    parts.source.models.pop("a")
    call = parts.call("hello", model="n")
    by = served(call)
    await ask(pipeline, call)
    assert by == ["b"]
    with pytest.raises(ModelNotFound):
        await ask(pipeline, parts.call("hello", model="a"))
