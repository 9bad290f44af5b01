from __future__ import annotations

import ctypes
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.errors import GenerationFailed
from localllm.core.generation import Sampling
from localllm.engines.llama_cpp.sampling import (
    AfterMarker,
    Floats,
    Sampler,
    Settings,
    log_probabilities,
    resolve,
    top_k_ids,
)

DRAWS = 4000


def row(seed: int, size: int = 200) -> Floats:
    return np.random.default_rng(seed).normal(0, 2, size).astype(np.float32)


def settings(**values: float) -> Settings:
    """Every step off but those named."""
    off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    return resolve(Sampling(), {**off, **values})


def frequencies(sampler: Sampler, logits: Floats, draws: int = DRAWS) -> dict[int, float]:
    counts = Counter(sampler.sample(logits.copy()) for _ in range(draws))
    return {token: count / draws for token, count in counts.items()}


def softmax(values: Floats) -> np.ndarray:
    weights = np.exp(values.astype(np.float64) - values.max())
    return np.asarray(weights / weights.sum())


@given(st.integers(1, 300), st.integers(1, 60), st.integers(0, 50))
def test_top_k_finds_the_largest(size: int, k: int, seed: int) -> None:
    logits = row(seed, size)
    expected = np.sort(logits)[::-1][:k]
    assert np.array_equal(np.sort(logits[top_k_ids(logits, k)])[::-1], expected)


@pytest.mark.parametrize("size", [4096, 151_936, 262_144, 262_145])
def test_top_k_by_strides_finds_the_largest_of_a_big_vocabulary(size: int) -> None:
    logits = row(size, size)
    logits[: size // 3] = 1.5  # many ties
    found = top_k_ids(logits, 40)
    assert len(set(found.tolist())) == 40
    assert np.array_equal(np.sort(logits[found]), np.sort(logits)[-40:])


def test_every_token_with_equal_logits_can_be_found() -> None:
    assert len(top_k_ids(np.zeros(8192, np.float32), 40)) == 40


def test_temperature_zero_takes_the_likeliest() -> None:
    logits = row(1)
    assert Sampler(resolve(Sampling(temperature=0))).sample(logits.copy()) == int(logits.argmax())


def test_the_same_seed_draws_the_same_tokens_and_another_does_not() -> None:
    logits = row(1)

    def draw(seed: int) -> list[int]:
        sampler = Sampler(resolve(Sampling(temperature=1.5)), seed=seed)
        return [sampler.sample(logits.copy()) for _ in range(50)]

    assert draw(7) == draw(7)
    assert draw(7) != draw(8)


def test_open_fields_are_the_models_then_llama_cpps() -> None:
    found = resolve(Sampling(top_p=0.5), {"temperature": 0.6, "top_k": 20.0, "top_p": 0.9})
    assert (found.temperature, found.top_k, found.top_p, found.min_p) == (0.6, 20, 0.5, 0.05)


def test_plain_temperature_draws_by_the_softmax() -> None:
    logits = row(3, 12)
    found = frequencies(Sampler(settings(temperature=1.7), seed=1), logits)
    expected = softmax(logits / np.float32(1.7))
    for token, chance in enumerate(expected):
        assert found.get(token, 0.0) == pytest.approx(chance, abs=0.03)


def test_top_p_without_top_k_cuts_where_the_whole_vocabulary_says() -> None:
    logits = row(4, 5000)
    chances = softmax(logits)
    order = np.argsort(-chances)
    kept = order[: int(np.searchsorted(np.cumsum(chances[order]), 0.3)) + 1]
    found = frequencies(Sampler(settings(top_p=0.3), seed=1), logits, 500)
    assert set(found) <= set(kept.tolist())


def test_a_flat_distribution_widens_the_head_of_top_p() -> None:
    logits = np.zeros(20_000, np.float32)
    found = frequencies(Sampler(settings(top_p=0.9), seed=1), logits, 300)
    assert len(found) > 280


def test_bias_forces_and_forbids() -> None:
    logits = row(5)
    best = int(logits.argmax())
    forbidden = Sampler(resolve(Sampling(temperature=0)), bias={best: -100.0})
    assert forbidden.sample(logits.copy()) != best
    forced = Sampler(resolve(Sampling(temperature=0.8)), bias={17: 100.0}, seed=1)
    assert {forced.sample(logits.copy()) for _ in range(20)} == {17}


def test_penalties_see_the_prompt_and_what_was_accepted() -> None:
    logits = np.array([3.0, 2.9, 1.0, -1.0], np.float32)
    sampler = Sampler(settings(temperature=0, repeat_penalty=2.0), history=[0])
    assert sampler.sample(logits.copy()) == 1
    sampler.accept(1)
    assert sampler.sample(logits.copy()) == 0  # 1.5 against 1.45
    frequent = Sampler(settings(temperature=0, frequency_penalty=1.0), history=[0, 0, 1])
    assert frequent.sample(logits.copy()) == 1


def test_penalties_forget_what_is_too_long_ago() -> None:
    logits = np.array([3.0, 2.0], np.float32)
    sampler = Sampler(settings(temperature=0, repeat_penalty=3.0, repeat_last_n=2), history=[0, 1, 1])
    assert sampler.sample(logits.copy()) == 0


def test_dry_penalises_what_would_lengthen_a_repetition() -> None:
    logits = np.zeros(10, np.float32)
    logits[4], logits[5] = 2.0, 1.0
    history = [1, 2, 3, 4, 7, 1, 2, 3]
    assert Sampler(settings(temperature=0), history=history).sample(logits.copy()) == 4
    dry = settings(temperature=0, dry_multiplier=1.0)
    assert Sampler(dry, history=history).sample(logits.copy()) == 5
    assert Sampler(dry, history=history, breaks=lambda token: token == 2).sample(logits.copy()) == 4


def test_xtc_drops_all_but_the_least_likely_of_the_likely() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.15, 0.05], np.float32))
    found = frequencies(Sampler(settings(xtc_probability=1.0, xtc_threshold=0.1), seed=1), logits, 300)
    assert set(found) == {2, 3}


@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_keeps_the_surprise_near_its_target(version: int) -> None:
    logits = row(6, 2000)
    chances = softmax(logits)
    sampler = Sampler(settings(mirostat=version, mirostat_tau=4.0, mirostat_eta=0.1), seed=1)
    surprises = [-np.log2(chances[sampler.sample(logits.copy())]) for _ in range(600)]
    assert np.mean(surprises[100:]) < np.mean(-np.log2(chances))
    assert np.mean(surprises[100:]) == pytest.approx(4.0, abs=2.0)


class OnlyEven:
    """A grammar that allows even tokens below a bound."""

    def __init__(self, bound: int = 1000) -> None:
        self.accepted: list[int] = []
        self._bound = bound

    def allows(self, token: int) -> bool:
        return token % 2 == 0 and token < self._bound

    def mask(self, logits: Floats) -> None:
        logits[1::2] = -np.inf
        logits[self._bound :] = -np.inf

    def accept(self, token: int) -> None:
        self.accepted.append(token)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_grammar_masks_only_when_the_first_choice_is_forbidden(temperature: float) -> None:
    grammar = OnlyEven()
    sampler = Sampler(settings(temperature=temperature), grammar=grammar, seed=1)
    for seed in range(30):
        token = sampler.sample(row(seed))
        sampler.accept(token)
    assert all(token % 2 == 0 for token in grammar.accepted)
    sampler.accept(3, end=True)
    assert 3 not in grammar.accepted


def test_a_mask_behind_a_marker_binds_only_what_follows() -> None:
    pieces = {1: b"hm </thi", 3: b"nk>", 5: b"x", 2: b"{"}
    grammar = OnlyEven()
    mask = AfterMarker(grammar, b"</think>", pieces.__getitem__)
    for token in (5, 1, 3):
        assert mask.allows(token)
        mask.accept(token)
    assert not mask.allows(5)
    assert mask.allows(2)
    mask.accept(2)
    assert grammar.accepted == [2]


def test_a_grammar_that_leaves_nothing_is_an_error() -> None:
    with pytest.raises(GenerationFailed):
        Sampler(settings(temperature=0), grammar=OnlyEven(0)).sample(row(1))


@pytest.mark.parametrize(
    "values", [{"temperature": 0.0}, {"temperature": 0.8, "top_k": 40}, {"top_p": 0.9}, {}]
)
def test_logits_that_are_not_numbers_are_an_error(values: dict[str, float]) -> None:
    logits = row(1)
    logits[3] = np.nan
    with pytest.raises(GenerationFailed):
        Sampler(settings(**values), seed=1).sample(logits)


def test_log_probabilities_are_those_of_the_whole_row() -> None:
    logits = row(8)
    chance, best = log_probabilities(logits, 5, 3)
    expected = np.log(softmax(logits))
    assert chance == pytest.approx(expected[5], abs=1e-4)
    assert [token for token, _ in best] == np.argsort(-logits)[:3].tolist()
    assert [value for _, value in best] == pytest.approx(np.sort(expected)[::-1][:3].tolist(), abs=1e-4)


@pytest.mark.llama_cpp
@pytest.mark.parametrize(
    "values",
    [
        {"top_k": 7},
        {"top_k": 40, "top_p": 0.8},
        {"top_k": 40, "top_p": 0.95, "min_p": 0.05},
        {"top_k": 30, "typical_p": 0.5},
        {"typical_p": 0.3},
        {"min_p": 0.2},
        {"top_n_sigma": 1.5},
        {"top_n_sigma": 1.0, "top_k": 10, "top_p": 0.9},
        {"repeat_penalty": 1.5, "presence_penalty": 0.5, "frequency_penalty": 0.3, "top_k": 8},
    ],
    ids=str,
)
def test_the_distribution_is_llama_cpps(values: dict[str, float]) -> None:
    history = [3, 3, 9, 100]
    chosen = settings(temperature=0.9, **values)
    logits = row(11, 150)
    expected = _llama_cpp_distribution(chosen, logits, history)
    found = frequencies(Sampler(chosen, seed=1, history=history), logits)
    assert set(found) <= set(expected)
    for token, chance in expected.items():
        assert found.get(token, 0.0) == pytest.approx(chance, abs=0.035)


def _llama_cpp_distribution(chosen: Settings, logits: Floats, history: list[int]) -> dict[int, float]:
    """What llama.cpp's own samplers leave of the row, as probabilities."""
    import llama_cpp.llama_cpp as native

    penalties = native.llama_sampler_init_penalties(
        len(logits),
        chosen.repeat_last_n,
        chosen.repeat_penalty,
        chosen.frequency_penalty,
        chosen.presence_penalty,
    )
    for token in history:
        native.llama_sampler_accept(penalties, token)
    steps = [
        penalties,
        native.llama_sampler_init_top_n_sigma(chosen.top_n_sigma),
        native.llama_sampler_init_top_k(chosen.top_k),
        native.llama_sampler_init_typical(chosen.typical_p, 1),
        native.llama_sampler_init_top_p(chosen.top_p, 1),
        native.llama_sampler_init_min_p(chosen.min_p, 1),
        native.llama_sampler_init_temp(chosen.temperature),
    ]
    data = (native.llama_token_data * len(logits))()
    for token, logit in enumerate(logits):
        data[token] = native.llama_token_data(token, float(logit), 0.0)
    array = native.llama_token_data_array(data=data, size=len(logits), selected=-1, sorted=False)
    for step in steps:
        native.llama_sampler_apply(step, ctypes.byref(array))
        native.llama_sampler_free(step)
    left = [(array.data[i].id, array.data[i].logit) for i in range(array.size)]
    chances = softmax(np.array([logit for _, logit in left], np.float32))
    return {token: float(chance) for (token, _), chance in zip(left, chances, strict=True) if chance > 0}
