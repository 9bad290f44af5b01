"""The scheduler's promises on every kind of memory llama.cpp has, with tiny models through the real worker."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import pytest_asyncio

from localllm.core.errors import Unsupported
from localllm.core.generation import Event, GenerationRequest, Sampling, TextDelta, Tier, TokenPrompt, Usage
from localllm.core.launch import LaunchPlan
from localllm.engines.base import Capability, Instance
from localllm.engines.llama_cpp.engine import LlamaCppEngine
from tests.support.tiny_gguf import ARCHITECTURES, VOCABULARY_SIZE, Architecture, write_tiny_gguf

pytestmark = [pytest.mark.llama_cpp, pytest.mark.asyncio(loop_scope="module")]

RECURRENT = {"lfm2", "mamba"}
PARALLEL = 3
ENDS = range(VOCABULARY_SIZE - 128, VOCABULARY_SIZE)
"""Special and unused tokens are behind the 256 bytes."""


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture(request: pytest.FixtureRequest) -> Architecture:
    kind: Architecture = request.param
    return kind


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def instance(
    architecture: Architecture, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Instance]:
    folder = tmp_path_factory.mktemp("tiny")
    path = write_tiny_gguf(folder / "tiny.gguf", architecture)
    # with half precision another batch shape moves logits by some 1e-3, and near ties come out differently
    plan = LaunchPlan(
        model_path=str(path),
        context_length=512,
        parallel=PARALLEL,
        threads=1,
        kv_type_k="f32",
        kv_type_v="f32",
        flash_attention="off",
    )
    loaded = await LlamaCppEngine(log_dir=folder / "log").load(plan, lambda progress: None)
    yield loaded
    await loaded.unload()


def prompt(seed: int, length: int) -> list[int]:
    source = random.Random(seed)
    return [source.randrange(20, 256) for _ in range(length)]


def ask(tokens: Sequence[int], count: int = 16, **fields: Any) -> GenerationRequest:
    """Greedy, of exactly ``count`` tokens; log probabilities carry the token ids."""
    defaults: dict[str, Any] = {
        "logprobs": 0,
        "sampling": Sampling(temperature=0, logit_bias=dict.fromkeys(ENDS, -100.0)),
    }
    return GenerationRequest(
        request_id="tiny", prompt=TokenPrompt(tuple(tokens)), max_tokens=count, **{**defaults, **fields}
    )


async def answer(instance: Instance, request: GenerationRequest) -> tuple[list[int | None], Usage]:
    events = [event async for event in instance.generate(request)]
    usage = events[-1]
    assert isinstance(usage, Usage)
    return tokens_of(events), usage


def tokens_of(events: Sequence[Event]) -> list[int | None]:
    return [p.token_id for event in events if isinstance(event, TextDelta) for p in event.logprobs]


async def alone(instance: Instance, tokens: Sequence[int], count: int = 16) -> list[int | None]:
    """Nothing beside it and nothing remembered: the reference."""
    found, usage = await answer(instance, ask(tokens, count, cache_prompt=False))
    assert usage.cached_tokens == 0
    return found


async def test_many_at_once_say_what_each_says_alone(instance: Instance) -> None:
    prompts = [prompt(seed, 7 + 23 * seed) for seed in range(7)]
    expected = [await alone(instance, tokens) for tokens in prompts]
    found = await asyncio.gather(*(answer(instance, ask(tokens)) for tokens in prompts))
    assert [tokens for tokens, _ in found] == expected


async def test_a_prefix_that_is_being_computed_is_shared(
    instance: Instance, architecture: Architecture
) -> None:
    shared = prompt(100, 200)
    prompts = [[*shared, *prompt(101 + index, 12)] for index in range(PARALLEL)]
    expected = [await alone(instance, tokens) for tokens in prompts]
    before = (await instance.stats()).prefilled_tokens_total or 0
    found = await asyncio.gather(*(answer(instance, ask(tokens)) for tokens in prompts))
    computed = ((await instance.stats()).prefilled_tokens_total or 0) - before
    assert [tokens for tokens, _ in found] == expected
    if (
        architecture not in RECURRENT
    ):  # a model this fast may be past the fork before anyone could ask for a pause
        assert computed <= 1.1 * (200 + 12 * PARALLEL)
        assert sorted(usage.cached_tokens or 0 for _, usage in found)[1:] == [200] * (PARALLEL - 1)


async def test_a_conversation_goes_on_where_it_was(instance: Instance) -> None:
    turn = prompt(200, 60)
    reply, _ = await answer(instance, ask(turn))
    longer = [*turn, *(token for token in reply if token is not None), *prompt(201, 10)]
    expected = await alone(instance, longer)
    found, usage = await answer(instance, ask(longer))
    assert found == expected
    assert usage.cached_tokens == 60 + 16 - 1


async def test_a_prompt_that_parts_earlier_is_cut_back_or_computed_again(
    instance: Instance, architecture: Architecture
) -> None:
    stem = prompt(300, 60)
    await answer(instance, ask([*stem, *prompt(301, 30)]))
    other = [*stem, *prompt(302, 30)]
    expected = await alone(instance, other)
    found, usage = await answer(instance, ask(other))
    assert found == expected
    assert usage.cached_tokens == (0 if architecture in RECURRENT else 60)


async def test_a_cancelled_answer_frees_its_place(instance: Instance) -> None:
    running = instance.generate(ask(prompt(400, 40), 300))
    async for event in running:
        if isinstance(event, TextDelta):
            break
    await running.aclose()  # type: ignore[attr-defined]
    async with asyncio.timeout(1):
        while (await instance.stats()).running:  # noqa: ASYNC110 - what is waited for is in another process
            await asyncio.sleep(0.01)
    tokens = prompt(401, 20)
    assert (await answer(instance, ask(tokens)))[0] == await alone(instance, tokens)


async def test_a_parked_answer_goes_on_as_if_nothing_had_been(instance: Instance) -> None:
    flex = [prompt(500 + index, 30) for index in range(PARALLEL)]
    urgent = prompt(510, 20)
    expected = [await alone(instance, tokens, 400) for tokens in flex]
    expected_urgent = await alone(instance, urgent)
    before = (await instance.stats()).preemptions_total or 0
    running = [
        asyncio.get_running_loop().create_task(answer(instance, ask(tokens, 400, tier=Tier.FLEX)))
        for tokens in flex
    ]
    while (await instance.stats()).running < PARALLEL:  # noqa: ASYNC110 - what is waited for is in another process
        await asyncio.sleep(0.001)
    assert (await answer(instance, ask(urgent, tier=Tier.PRIORITY)))[0] == expected_urgent
    assert [tokens for tokens, _ in await asyncio.gather(*running)] == expected
    assert (await instance.stats()).preemptions_total == before + 1


async def test_choices_share_one_prefill(instance: Instance) -> None:
    tokens = prompt(600, 100)
    expected = await alone(instance, tokens)
    before = (await instance.stats()).prefilled_tokens_total or 0
    events = [event async for event in instance.generate(ask(tokens, n=2))]
    for choice in range(2):
        own = [event for event in events if isinstance(event, TextDelta) and event.choice == choice]
        assert tokens_of(own) == expected
    assert ((await instance.stats()).prefilled_tokens_total or 0) - before <= 105


async def test_a_prediction_is_exact_or_refused(instance: Instance, architecture: Architecture) -> None:
    tokens = prompt(700, 40)
    text = await instance.detokenize(
        [token for token in await alone(instance, tokens, 60) if token is not None]
    )
    predicted = ask(tokens, 60, prediction=text, logprobs=None)
    if architecture in RECURRENT:
        assert Capability.PREDICTION not in instance.info.capabilities
        with pytest.raises(Unsupported):
            await answer(instance, predicted)
        return
    plain = [event async for event in instance.generate(ask(tokens, 60, logprobs=None))]
    helped = [event async for event in instance.generate(predicted)]

    def said(events: Sequence[Event]) -> str:
        return "".join(event.text for event in events if isinstance(event, TextDelta))

    assert said(helped) == said(plain)


async def test_nothing_is_left_running_and_the_cache_is_within_its_bounds(instance: Instance) -> None:
    stats = await instance.stats()
    assert (stats.running, stats.waiting) == (0, 0)
    assert 0 < (stats.kv_used_tokens or 0) <= (stats.kv_total_tokens or 0)
