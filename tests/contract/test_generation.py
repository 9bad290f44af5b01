"""What a generation must be, whatever the engine: its events, its limits, its figures."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from typing import Any, cast

import pytest
from msgspec.structs import replace

from localllm.core.errors import BadRequest, ContextLengthExceeded, Unsupported
from localllm.core.generation import (
    ChatPrompt,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    ImagePart,
    JsonObject,
    JsonSchema,
    Message,
    Progress,
    Prompt,
    Sampling,
    Started,
    TextDelta,
    TextPart,
    TextPrompt,
    TokenPrompt,
    Usage,
)
from localllm.engines.base import Capability, Instance
from tests.contract.subjects import Subject, can, request, settled, somebody_waits

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc000000301010018dd8db0"
    "0000000049454e44ae426082"
)


async def events_of(instance: Instance, asked: GenerationRequest) -> list[Event]:
    return [event async for event in instance.generate(asked)]


def text_of(events: list[Event], choice: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, TextDelta) and e.choice == choice)


async def refused(instance: Instance, capability: Capability, asked: GenerationRequest) -> bool:
    """Whether the engine lacks this capability; then it must say so instead of dropping what needs it."""
    if can(instance, capability):
        return False
    with pytest.raises(Unsupported) as caught:
        await events_of(instance, asked)
    assert caught.value.param is not None
    return True


async def of_length(instance: Instance, length: int) -> Prompt:
    """A prompt of so many tokens; for an engine that takes only text, words of one token behind a first special one."""
    if not can(instance, Capability.TOKENIZE):
        return TextPrompt(" word" * (length - 1))
    (token, *_) = await instance.tokenize(" word")
    return TokenPrompt((token,) * length)


def usage_of(events: list[Event]) -> Usage:
    usage = events[-1]
    assert isinstance(usage, Usage)
    return usage


def started_of(events: list[Event]) -> Started:
    return next(event for event in events if isinstance(event, Started))


def chat(text: str, **fields: Any) -> GenerationRequest:
    return request("", prompt=ChatPrompt(messages=(Message(role="user", content=text),)), **fields)


@pytest.mark.parametrize("asked", [request("Once upon a time", max_tokens=8), chat("Hello", max_tokens=8)])
async def test_events_come_in_order_and_the_figures_agree(shared: Instance, asked: GenerationRequest) -> None:
    events = await events_of(shared, asked)
    kinds = [type(event) for event in events if not isinstance(event, Progress)]
    assert kinds[0] is Started
    assert kinds.count(Started) == 1
    assert kinds[-2:] == [Finished, Usage]
    assert set(kinds[1:-2]) == {TextDelta}
    started, usage = started_of(events), usage_of(events)
    assert started.context_length == shared.info.context_length
    counts_first = can(shared, Capability.TOKENIZE)
    assert started.prompt_tokens == (usage.prompt_tokens if counts_first else None)
    assert 0 < usage.completion_tokens <= 8
    assert usage.cached_tokens is not None
    assert usage.prompt_tokens > usage.cached_tokens >= 0
    assert text_of(events)


async def test_max_tokens_is_a_cap_and_says_so(subject: Subject, shared: Instance) -> None:
    asked = subject.endless(shared)
    events = await events_of(shared, replace(asked, max_tokens=5))
    assert usage_of(events).completion_tokens == 5
    assert [event.reason for event in events if isinstance(event, Finished)] == [FinishReason.LENGTH]


async def test_without_a_cap_the_context_is_the_cap(subject: Subject, shared: Instance) -> None:
    prompt = await of_length(shared, shared.info.context_length - 20)
    events = await events_of(shared, replace(subject.endless(shared), prompt=prompt))
    assert [event.reason for event in events if isinstance(event, Finished)] == [FinishReason.LENGTH]
    assert 18 <= usage_of(events).completion_tokens <= 21


async def test_a_prompt_that_is_too_long_fails_before_any_event_with_both_figures(shared: Instance) -> None:
    seen: list[Event] = []
    with pytest.raises(ContextLengthExceeded) as caught:
        async for event in shared.generate(chat("word " * 3000, max_tokens=1)):
            seen.append(event)
    assert seen == []
    assert caught.value.context_length == shared.info.context_length
    if can(shared, Capability.TOKENIZE):
        assert caught.value.prompt_tokens is not None
        assert caught.value.prompt_tokens > 3000
    assert await events_of(shared, chat("Hello", max_tokens=2))


async def test_a_prompt_of_nearly_the_whole_context_is_not_cut(shared: Instance) -> None:
    length = shared.info.context_length
    nearly, over = await of_length(shared, length - 4), await of_length(shared, length + 1)
    events = await events_of(shared, request("", prompt=nearly, max_tokens=2))
    assert usage_of(events).prompt_tokens == length - 4
    with pytest.raises(ContextLengthExceeded):
        await events_of(shared, request("", prompt=over, max_tokens=2))


@pytest.mark.parametrize("stop", ["three", "o thr", "ree f"])
async def test_a_stop_string_ends_the_answer_and_never_shows(
    subject: Subject, shared: Instance, stop: str
) -> None:
    said = subject.said("one two three four")
    asked = subject.saying(shared, "one two three four", stop=("nowhere", stop))
    events = await events_of(shared, asked)
    assert text_of(events) == said[: said.index(stop)]
    (finished,) = [event for event in events if isinstance(event, Finished)]
    assert finished.reason is FinishReason.STOP
    assert finished.stop_sequence == (stop if can(shared, Capability.STOP_SEQUENCE) else None)


async def test_text_that_only_begins_like_a_stop_string_is_kept(subject: Subject, shared: Instance) -> None:
    stop = subject.said("one two") + " three"
    asked = subject.saying(shared, "one two", stop=(stop[4:],))
    assert text_of(await events_of(shared, asked)).rstrip() == subject.said("one two")


@pytest.mark.parametrize("said", ["é漢字😀", "a\u0301 👩‍👩‍👧 ✈️", "Ω≈ç√∫"])
async def test_characters_are_whole_however_the_tokens_split_them(
    subject: Subject, shared: Instance, said: str
) -> None:
    events = await events_of(shared, subject.saying(shared, said))
    assert text_of(events).rstrip() == subject.said(said)
    assert "\ufffd" not in "".join(event.text for event in events if isinstance(event, TextDelta))


@pytest.mark.parametrize("n", [2, 3])
async def test_several_choices_each_end_once_and_usage_sums_them(
    subject: Subject, shared: Instance, n: int
) -> None:
    asked = replace(subject.endless(shared), n=n, max_tokens=4)
    if await refused(shared, Capability.MULTIPLE_CHOICES, asked):
        return
    events = await events_of(shared, asked)
    assert sorted(event.choice for event in events if isinstance(event, Finished)) == list(range(n))
    usage = usage_of(events)
    assert usage.completion_tokens == 4 * n
    assert all(text_of(events, choice) for choice in range(n))
    assert sum(isinstance(event, Started) for event in events) == 1


@pytest.mark.parametrize("alternatives", [0, 3])
@pytest.mark.parametrize("as_chat", [False, True])
async def test_logprobs_cover_every_token(shared: Instance, alternatives: int, as_chat: bool) -> None:
    make = chat if as_chat else request
    events = await events_of(shared, make("Once upon a time", logprobs=alternatives, max_tokens=6))
    tokens = [p for event in events if isinstance(event, TextDelta) for p in event.logprobs]
    assert len(tokens) == usage_of(events).completion_tokens
    assert all(token.logprob <= 0 and math.isfinite(token.logprob) for token in tokens)
    assert all(len(token.top) == alternatives for token in tokens)
    assert b"".join(token.token_bytes for token in tokens).decode() == text_of(events)


async def test_no_logprobs_unless_asked(shared: Instance) -> None:
    events = await events_of(shared, request("Once upon a time", max_tokens=3))
    assert not any(event.logprobs for event in events if isinstance(event, TextDelta))


async def test_a_seed_makes_the_answer_repeatable(shared: Instance) -> None:
    asked = request(
        "Once upon a time", sampling=Sampling(temperature=1.0, seed=7), max_tokens=12, cache_prompt=False
    )
    first, second = await events_of(shared, asked), await events_of(shared, asked)
    assert text_of(first) == text_of(second)


async def test_a_banned_token_does_not_come(shared: Instance) -> None:
    banning_some = request("Hello", sampling=Sampling(logit_bias={5: -100.0}), max_tokens=1)
    if await refused(shared, Capability.LOGIT_BIAS, banning_some) or not can(shared, Capability.TOKENIZE):
        return
    usual = await events_of(shared, request("Once upon a time", max_tokens=1, logprobs=0))
    (token,) = await shared.tokenize(text_of(usual))
    banned = Sampling(temperature=0.0, logit_bias={token: -100.0})
    events = await events_of(shared, request("Once upon a time", sampling=banned, max_tokens=1))
    assert text_of(events) != text_of(usual)


async def test_json_object_is_enforced(shared: Instance) -> None:
    events = await events_of(shared, chat("Say hello.", constraint=JsonObject(), max_tokens=120))
    text = text_of(events)
    assert text.lstrip().startswith("{")
    if any(isinstance(event, Finished) and event.reason is FinishReason.STOP for event in events):
        assert isinstance(json.loads(text), dict)


@pytest.mark.parametrize("as_chat", [False, True])
async def test_a_json_schema_is_enforced(shared: Instance, as_chat: bool) -> None:
    schema: dict[str, object] = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}, "count": {"type": "integer", "maximum": 9}},
        "required": ["colour", "count"],
        "additionalProperties": False,
    }
    make = chat if as_chat else request
    events = await events_of(shared, make("A car.", constraint=JsonSchema(schema), max_tokens=200))
    answer = json.loads(text_of(events))
    assert answer["colour"] in {"red", "green"}
    assert isinstance(answer["count"], int)
    assert answer.keys() == {"colour", "count"}


async def test_counting_agrees_with_what_a_generation_counts(shared: Instance) -> None:
    if not can(shared, Capability.TOKENIZE):
        with pytest.raises(Unsupported):
            await shared.count_tokens(TextPrompt("Hello there, world"))
        return
    tokens = tuple(await shared.tokenize("Hello there, world", add_special=True))
    for prompt in (
        TokenPrompt(tokens),
        TextPrompt("Hello there, world"),
        ChatPrompt(
            messages=(Message(role="system", content="Be brief."), Message(role="user", content="Hi"))
        ),
    ):
        events = await events_of(shared, request("", prompt=prompt, max_tokens=1))
        assert await shared.count_tokens(prompt) == started_of(events).prompt_tokens


async def test_tokens_and_text_convert_both_ways(shared: Instance) -> None:
    if not can(shared, Capability.TOKENIZE):
        with pytest.raises(Unsupported):
            await shared.tokenize("Hello there")
        with pytest.raises(Unsupported):
            await shared.detokenize([5])
        return
    for text in ("Hello there", "é漢字😀", " two  blanks\n"):
        assert await shared.detokenize(await shared.tokenize(text)) == text
    assert await shared.tokenize("") == []


async def test_a_number_that_is_no_token_is_refused(shared: Instance) -> None:
    with pytest.raises(BadRequest):
        await events_of(shared, request("", prompt=TokenPrompt((5, 99_999_999)), max_tokens=1))
    assert await events_of(shared, request("Hello", max_tokens=1))


async def test_a_repeated_prompt_is_cached_and_said_to_be(shared: Instance) -> None:
    text = "The quick brown fox jumps over the lazy dog and then sleeps under the old oak tree until noon."
    await events_of(shared, request(text, max_tokens=2))
    again = await events_of(shared, request(text, max_tokens=2))
    known_first, cached = started_of(again).cached_tokens, usage_of(again).cached_tokens
    if known_first is None and cached == 0:  # an engine that cannot tell makes up no figure
        return
    assert cached >= 8
    assert known_first in (None, cached)
    fresh = await events_of(shared, request(text, max_tokens=2, cache_prompt=False))
    assert usage_of(fresh).cached_tokens == 0


async def test_the_last_message_is_continued_when_asked(shared: Instance) -> None:
    messages = (Message(role="user", content="Count."), Message(role="assistant", content="One, two,"))
    whole = ChatPrompt(messages=messages)
    begun = ChatPrompt(messages=messages, continue_final_message=True)
    if await refused(shared, Capability.CONTINUE, request("", prompt=begun, max_tokens=4)):
        return
    assert await shared.count_tokens(begun) < await shared.count_tokens(whole)
    text = text_of(await events_of(shared, request("", prompt=begun, max_tokens=4)))
    assert not text.startswith("One, two,")


async def test_what_cannot_be_honoured_is_refused(shared: Instance) -> None:
    picture = Message(role="user", content=(TextPart("What is it?"), ImagePart(PIXEL, "image/png")))
    asked = {
        Capability.VISION: request("", prompt=ChatPrompt(messages=(picture,))),
        Capability.PREDICTION: chat("Hello", prediction="Hello to you", max_tokens=2),
    }
    for capability, one in asked.items():
        if not can(shared, capability):
            with pytest.raises(Unsupported) as caught:
                await events_of(shared, one)
            assert caught.value.param is not None
    if not can(shared, Capability.EMBEDDING):
        with pytest.raises(Unsupported):
            await shared.embed(["Hello"])


async def test_more_requests_than_places_are_all_answered(shared: Instance) -> None:
    count = shared.info.parallel * 3

    async def one(index: int) -> list[Event]:
        return await events_of(shared, chat(f"Number {index}", max_tokens=3))

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(index)) for index in range(count)]
    assert all(usage_of(task.result()).completion_tokens for task in tasks)


async def test_one_requests_failure_is_its_own(subject: Subject, shared: Instance) -> None:
    async def fails() -> None:
        with pytest.raises(ContextLengthExceeded):
            await events_of(shared, chat("word " * 3000))

    async def works() -> list[Event]:
        return await events_of(shared, chat("Hello", max_tokens=12))

    async with asyncio.TaskGroup() as group:
        good = group.create_task(works())
        for _ in range(3):
            group.create_task(fails())
    assert usage_of(good.result()).completion_tokens > 0


async def leave_after(events: AsyncIterator[Event], kind: type) -> None:
    """Read until the first event of this kind and close the stream."""
    async with aclosing(cast("AsyncGenerator[Event, None]", events)) as stream:
        async for event in stream:
            if isinstance(event, kind):
                return


@pytest.mark.parametrize("phase", [Started, TextDelta])
async def test_leaving_frees_the_place_within_a_second(
    subject: Subject, shared: Instance, phase: type
) -> None:
    if phase is Started:
        long = "word " * (shared.info.context_length * 4 // 5)
        abandoned = [chat(long) for _ in range(shared.info.parallel)]
    else:
        abandoned = [subject.endless(shared) for _ in range(shared.info.parallel)]
    async with asyncio.TaskGroup() as group:
        for asked in abandoned:
            group.create_task(leave_after(shared.generate(asked), phase))
    await settled(shared, within_s=1.0)
    async with asyncio.timeout(5):
        assert await events_of(shared, chat("Hello", max_tokens=1))


async def test_leaving_the_queue_leaves_the_others_alone(subject: Subject, shared: Instance) -> None:
    holders = [shared.generate(subject.endless(shared)) for _ in range(shared.info.parallel)]
    for holder in holders:
        await anext(holder)
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(events_of(shared, chat("Hello", max_tokens=1)))
        await somebody_waits(shared)
        waiting.cancel()
    assert (await shared.stats()).running == len(holders)
    for holder in holders:
        await anext(holder)
        await aclose(holder)
    await settled(shared, within_s=1.0)


async def aclose(events: AsyncIterator[Event]) -> None:
    async with aclosing(cast("AsyncGenerator[Event, None]", events)):
        return


async def test_counters_grow_and_a_ping_is_answered(shared: Instance) -> None:
    before = await shared.stats()
    events = await events_of(shared, request("Once upon a time", max_tokens=3))
    after = await shared.stats()
    for name in ("prompt_tokens_total", "completion_tokens_total"):
        old, new = getattr(before, name), getattr(after, name)
        assert (old is None and new is None) or new > old, name
    if after.completion_tokens_total is not None and before.completion_tokens_total is not None:
        grown = after.completion_tokens_total - before.completion_tokens_total
        assert grown == usage_of(events).completion_tokens
    assert (after.running, after.waiting) == (0, 0)
    await shared.ping()
