"""What the pipeline adds around an engine's stream: checks, the account of each request, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing

import pytest

from localllm.core.control import RequestPhase, RequestRecord
from localllm.core.errors import EngineCrashed, ModelNotFound, Unsupported
from localllm.core.generation import (
    Finished,
    FinishReason,
    GenerationRequest,
    JsonObject,
    Sampling,
    TextDelta,
    TextPrompt,
    Tier,
    Usage,
)
from localllm.engines.base import Capability
from localllm.service.pipeline import CLIENT_LEFT, EmbedCall, Pipeline
from tests.support.script import Crash, Flood, Prefill, Reasoning, Start, Step, Text, Wait
from tests.support.stored_models import stored_model
from tests.support.until import until
from tests.unit.service.conftest import Parts


class Notes:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.records: list[RequestRecord] = []
        self.gaps: list[int] = []

    def finished(self, record: RequestRecord, gaps_ms: Sequence[float]) -> None:
        self.records.append(record)
        self.gaps.append(len(gaps_ms))

    @property
    def last(self) -> RequestRecord:
        return self.records[-1]


@pytest.fixture
def notes(parts: Parts) -> Notes:
    notes = Notes()
    parts.pipeline = Pipeline(parts.manager, parts.activity, [notes], status_of=lambda error: 418)
    return notes


async def test_events_pass_unchanged_and_the_request_is_recorded(parts: Parts, notes: Notes) -> None:
    parts.engine.enqueue(Reasoning("hm"), Text("one two three"))
    events = await parts.ask("hi")

    assert [type(e) for e in events][-2:] == [Finished, Usage]
    record = notes.last
    assert (record.status, record.error_code, record.finish_reason) == (200, None, "stop")
    assert (record.completion_tokens, record.reasoning_tokens) == (4, 1)
    assert record.model == "a" and record.engine == "scripted" and record.context_length == 4096
    assert record.ttft_ms is not None and record.total_ms is not None and record.queue_ms is not None
    assert record.ttft_ms <= record.total_ms
    assert notes.gaps == [3]
    assert not parts.activity.open


async def test_a_failure_has_its_code_and_status(parts: Parts, notes: Notes) -> None:
    parts.engine.enqueue(Text("half"), Crash())
    with pytest.raises(EngineCrashed):
        await parts.ask("hi")
    assert (notes.last.status, notes.last.error_code) == (418, "engine_crashed")
    assert notes.last.completion_tokens == 1


async def test_a_request_that_never_got_a_place_is_recorded_too(parts: Parts, notes: Notes) -> None:
    with pytest.raises(ModelNotFound):
        await parts.ask("hi", model="nope")
    assert (notes.last.model, notes.last.engine, notes.last.error_code) == ("nope", None, "model_not_found")


async def test_closing_the_stream_frees_the_engine_and_counts_as_a_client_that_left(
    parts: Parts, notes: Notes
) -> None:
    parts.engine.when("LONG", Flood(10_000))
    async with aclosing(parts.pipeline.generate(parts.call("LONG", request_id="r9"))) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                break
    assert parts.engine.cancelled == ["r9"]
    assert (notes.last.status, notes.last.error_code) == (CLIENT_LEFT, "cancelled")
    state = parts.manager.state("a")
    assert state is not None and state.running == 0


async def test_cancelling_the_task_does_the_same(parts: Parts, notes: Notes) -> None:
    parts.engine.enqueue(Text("x"), Wait(asyncio.Event()))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(parts.ask("hi"))
        await until(lambda: any(r.completion_tokens for r in parts.activity.open.values()))
        task.cancel()
    assert notes.last.status == CLIENT_LEFT
    assert not parts.activity.open


async def test_what_the_engine_cannot_do_is_refused_by_name_before_it_starts(
    parts: Parts, notes: Notes
) -> None:
    parts.engine.capabilities -= {Capability.JSON_SCHEMA}
    call = parts.call("hi")
    call.request = type(call.request)(request_id="r", prompt=TextPrompt("hi"), constraint=JsonObject())
    with pytest.raises(Unsupported) as caught:
        async with aclosing(parts.pipeline.generate(call)) as events:
            await anext(events)
    assert caught.value.param == "response_format"
    assert parts.engine.calls == 0


async def test_the_ceiling_holds_for_requests_without_and_above_it(parts: Parts) -> None:
    parts.pipeline = Pipeline(parts.manager, parts.activity, max_output_tokens=3)
    parts.engine.when("LONG", Flood(100))
    events = await parts.ask("LONG")

    assert Finished(FinishReason.LENGTH) in events
    assert parts.engine.requests[-1].max_tokens == 3


async def test_the_models_own_sampling_fills_what_the_request_leaves_open(parts: Parts) -> None:
    path = parts.source.models["a"].path
    parts.source.models["a"] = stored_model("a", path, sampling=Sampling(temperature=0.3, top_k=7))
    call = parts.call("hi")
    call.request = type(call.request)(
        request_id="r", prompt=call.request.prompt, sampling=Sampling(temperature=0.9)
    )
    _ = [event async for event in parts.pipeline.generate(call)]

    used = parts.engine.requests[-1].sampling
    assert (used.temperature, used.top_k, used.top_p) == (0.9, 7, None)


async def test_what_runs_is_shown_with_its_phase(parts: Parts) -> None:
    prefilled, done = asyncio.Event(), asyncio.Event()
    parts.engine.enqueue(Prefill(1), Wait(prefilled), Start(), Text("one two"), Wait(done))
    async with asyncio.TaskGroup() as group:
        group.create_task(parts.ask("hi there"))
        await until(lambda: any(r.prefilled_tokens for r in parts.activity.requests()))
        assert parts.activity.requests()[0].phase is RequestPhase.PREFILL
        prefilled.set()
        await until(lambda: any(r.completion_tokens == 2 for r in parts.activity.requests()))
        (shown,) = parts.activity.requests()
        assert shown.phase is RequestPhase.DECODE and shown.tokens_per_second is not None
        assert parts.activity.live().running == 1
        done.set()
    assert parts.activity.live().running == 0
    assert parts.activity.live().last_ttft_ms is not None


async def test_the_record_is_handed_to_the_caller(parts: Parts) -> None:
    records: list[RequestRecord] = []
    call = parts.call("hi")
    call.on_finished = records.append
    _ = [event async for event in parts.pipeline.generate(call)]
    assert records[0].tier == Tier.DEFAULT.value


async def test_embedding_is_accounted_for_like_generation(parts: Parts, notes: Notes) -> None:
    result = await parts.pipeline.embed(EmbedCall(id="e", endpoint="embeddings", model="a", inputs=["x y"]))
    assert len(result.vectors) == 1
    assert notes.last.prompt_tokens == result.prompt_tokens


async def test_a_model_that_answers_gets_a_second_form_for_embeddings(parts: Parts, notes: Notes) -> None:
    parts.engine.capabilities -= {Capability.EMBEDDING}
    await parts.ask("hi")
    call = EmbedCall(id="e", endpoint="embeddings", model="a", inputs=["x"])
    with pytest.raises(Unsupported):
        await parts.pipeline.embed(call)  # this engine cannot embed in any form
    assert [plan.embedding for plan in parts.engine.loads] == [False, True]

    parts.engine.capabilities |= {Capability.EMBEDDING}
    await parts.manager.unload("a")
    await parts.ask("hi")
    await parts.pipeline.embed(call)
    assert len(parts.manager.states()) == 1  # it can do both


async def test_tokens_go_there_and_back(parts: Parts) -> None:
    tokens = await parts.pipeline.tokenize("a", "one two")
    assert await parts.pipeline.detokenize("a", tokens) == "one two"
    assert await parts.pipeline.count_tokens("a", TextPrompt("one two")) == len(tokens)


async def test_an_error_nobody_foresaw_is_ours_and_still_ends_the_account(parts: Parts, notes: Notes) -> None:
    def broken(request: GenerationRequest) -> list[Step]:
        raise ZeroDivisionError

    parts.engine.when("broken", script=broken)
    with pytest.raises(ZeroDivisionError):
        await parts.ask("broken")
    assert not parts.activity.open
    assert (notes.last.status, notes.last.error_code) == (418, "internal_error")
