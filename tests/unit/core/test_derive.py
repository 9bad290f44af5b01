"""Facts of files that are not here."""

from __future__ import annotations

import pytest

from localllm.core.derive import mix_bytes, requantised
from tests.support.known_facts import facts_of


def test_the_same_quant_is_the_same_facts() -> None:
    facts = facts_of("Llama-3.1-8B")
    assert requantised(facts, "Q4_K_M") is facts


def test_another_quant_is_sized_by_its_recipe() -> None:
    found = requantised(facts_of("Llama-3.1-8B"), "Q8_0")
    assert found.quant == "Q8_0"
    assert mix_bytes(found) / 2**20 == pytest.approx(8137.64, rel=0.001)
    assert found.n_layer == 32


def test_a_known_size_scales_the_tensors() -> None:
    found = requantised(facts_of("Llama-3.1-8B"), "Q6_K", file_bytes=7_000_000_000)
    assert found.size_bytes == 7_000_000_000
    assert mix_bytes(found) == pytest.approx(7_000_000_000, rel=0.002)


def test_a_mix_without_a_recipe_needs_its_size() -> None:
    facts = facts_of("Llama-3.1-8B")
    found = requantised(facts, "UD-Q4_K_XL", file_bytes=5_000_000_000)
    assert {t.type for t in found.tensors} >= {"Q4_K", "Q6_K"}
    with pytest.raises(KeyError):
        requantised(facts, "UD-Q4_K_XL")
