"""Which hardware a model needs."""

from __future__ import annotations

from localllm.core.hardware_for import HardwareNeed, hardware_for
from localllm.core.units import GIB
from localllm.hardware.devices import load_device_table
from tests.support.known_facts import facts_of

_TABLE = load_device_table()


def need(model: str, context_length: int = 8192) -> HardwareNeed:
    return hardware_for(facts_of(model), _TABLE, context_length=context_length)


def test_an_8b_runs_on_an_8_gb_card_and_not_on_a_4_gb_one() -> None:
    found = need("Llama-3.1-8B")
    names = {candidate.device for candidate in found.candidates}
    assert "GeForce RTX 4060" in names
    assert "GeForce GTX 1650" not in names
    assert 5 * GIB < found.gpu_bytes < 6 * GIB


def test_candidates_come_smallest_first_with_their_speed() -> None:
    found = need("Llama-3.3-70B").candidates
    assert found
    sizes = [candidate.memory_bytes for candidate in found]
    assert sizes == sorted(sizes)
    assert all(candidate.decode_tokens_per_second for candidate in found)
    assert all(candidate.spare_bytes >= 0 for candidate in found)


def test_more_context_needs_more() -> None:
    assert need("Llama-3.1-8B", context_length=65536).gpu_bytes > need("Llama-3.1-8B").gpu_bytes
    assert len(need("Llama-3.1-8B", context_length=131072).candidates) < len(need("Llama-3.1-8B").candidates)
