"""Perplexity and divergence against figures worked out by hand."""

from __future__ import annotations

import math

import pytest

np = pytest.importorskip("numpy", reason="needs numpy (extra `llama-cpp`)")

from localllm.engines.llama_cpp.quality import Score, log_softmax  # noqa: E402


def test_log_softmax_is_normalised_and_stable() -> None:
    rows = np.array([[0.0, 0.0, 0.0, 0.0], [1e4, 1e4, -1e4, 0.0]], np.float32)
    found = log_softmax(rows)
    assert np.allclose(np.exp(found).sum(axis=1), 1.0)
    assert found[0, 0] == pytest.approx(-math.log(4))
    assert found[1, 0] == pytest.approx(-math.log(2))


def test_perplexity_of_a_uniform_guess_is_the_vocabulary() -> None:
    score = Score()
    score.add(log_softmax(np.zeros((8, 32), np.float32)), np.arange(8, dtype=np.int32))
    assert score.perplexity == pytest.approx(32.0)
    assert score.perplexity_error == pytest.approx(0.0, abs=1e-5)


def test_divergence_matches_the_definition_and_is_zero_with_itself() -> None:
    reference = np.log(np.array([[0.5, 0.5], [0.9, 0.1]], np.float32))
    other = np.log(np.array([[0.25, 0.75], [0.9, 0.1]], np.float32))
    score = Score()
    score.add(other, np.array([0, 0], np.int32))
    score.compare(other, reference)
    expected = 0.5 * math.log(0.5 / 0.25) + 0.5 * math.log(0.5 / 0.75)
    assert score.divergences == pytest.approx([expected, 0.0], abs=1e-6)
    assert score.mean_kld == pytest.approx(expected / 2, abs=1e-6)
    assert score.same_top_percent == 50.0  # the even row's first token wins there, its second here


def test_a_reference_has_no_divergence() -> None:
    score = Score()
    score.add(log_softmax(np.zeros((1, 2), np.float32)), np.zeros(1, np.int32))
    assert (score.mean_kld, score.kld_p99, score.same_top_percent) == (None, None, None)
    assert score.perplexity_error == math.inf
