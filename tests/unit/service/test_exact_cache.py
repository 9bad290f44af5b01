"""The exact cache: what is the same question, what is not, and that it stays within its bounds."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from localllm.core.generation import (
    ChatPrompt,
    Event,
    Finished,
    FinishReason,
    GenerationRequest,
    ImagePart,
    Message,
    Progress,
    Sampling,
    Started,
    TextDelta,
    Tier,
    Usage,
)
from localllm.service.gateway.exact_cache import ExactCache, cache_key, is_determined

REQUEST = GenerationRequest(
    request_id="a",
    prompt=ChatPrompt(messages=(Message(role="user", content="hi"),)),
    sampling=Sampling(temperature=0.0),
    max_tokens=5,
)
ANSWER: tuple[Event, ...] = (
    Progress(1, 2),
    Started(2, 0, 100),
    TextDelta("Hello"),
    Finished(FinishReason.STOP),
    Usage(prompt_tokens=2, cached_tokens=0, completion_tokens=1),
)


def key(request: GenerationRequest = REQUEST, model: str = "sha256:aa", name: str | None = None) -> bytes:
    return cache_key(request, model_identity=model, key_name=name)


def test_what_does_not_decide_the_answer_does_not_change_the_key() -> None:
    assert key() == key(replace(REQUEST, request_id="b", tier=Tier.FLEX, prediction="Hello"))


@pytest.mark.parametrize(
    "other",
    [
        replace(REQUEST, max_tokens=6),
        replace(REQUEST, stop=("x",)),
        replace(REQUEST, sampling=Sampling(temperature=0.0, top_k=3)),
        replace(REQUEST, prompt=ChatPrompt(messages=(Message(role="user", content="hi "),))),
        replace(
            REQUEST,
            prompt=ChatPrompt(messages=(Message(role="user", content=(ImagePart(b"1", "image/png"),)),)),
        ),
        replace(REQUEST, logprobs=1),
    ],
)
def test_what_decides_the_answer_changes_the_key(other: GenerationRequest) -> None:
    assert key() != key(other)


def test_another_model_file_or_key_is_another_question() -> None:
    assert len({key(), key(model="sha256:bb"), key(name="ci")}) == 3


def test_biases_are_part_of_the_question_in_any_order() -> None:
    def biased(bias: dict[int, float]) -> bytes:
        request = replace(REQUEST, sampling=replace(REQUEST.sampling, logit_bias=bias))
        return cache_key(request, model_identity="m", key_name=None)

    assert biased({1: 2.0, 3: 4.0}) == biased({3: 4.0, 1: 2.0})
    assert len({biased({}), biased({1: 2.0}), biased({1: 3.0}), biased({2: 2.0})}) == 4


def test_only_determined_requests_count() -> None:
    assert is_determined(REQUEST)
    assert is_determined(replace(REQUEST, sampling=Sampling(temperature=1.0, seed=3)))
    assert not is_determined(replace(REQUEST, sampling=Sampling()))
    assert not is_determined(replace(REQUEST, n=2))


def test_an_answer_is_given_again_until_it_is_too_old() -> None:
    cache = ExactCache(max_bytes=10_000, ttl_s=60)
    assert cache.get(key(), 0.0) is None
    cache.put(key(), ANSWER, 0.0)
    assert cache.get(key(), 59.9) == ANSWER[1:]
    assert cache.get(key(), 60.0) is None
    assert (cache.stats.hits, cache.stats.misses, cache.stats.entries, cache.stats.size_bytes) == (1, 2, 0, 0)


def test_the_size_bound_holds_and_the_least_used_goes_first() -> None:
    cache = ExactCache(max_bytes=10_000, ttl_s=60)
    for number in range(100):
        cache.put(key(name=str(number)), (*ANSWER[:2], TextDelta("x" * 100), *ANSWER[3:]), 0.0)
        cache.get(key(name="0"), 0.0)
        assert cache.stats.size_bytes <= 10_000
    assert cache.get(key(name="0"), 0.0) is not None
    assert cache.get(key(name="1"), 0.0) is None
    cache.put(key(name="big"), (TextDelta("x" * 1_200),), 0.0)
    assert cache.get(key(name="big"), 0.0) is None
