"""Which models are suggested for a machine."""

from __future__ import annotations

import pytest
from msgspec import structs

from localllm.core.known_models import find_known_model
from localllm.core.machine import Machine
from localllm.core.plan import Profile
from localllm.core.suggest import LEAST_TOKENS_PER_SECOND, Candidate, Suggestion, suggest, worth
from localllm.hardware.devices import load_device_table
from localllm.hardware.simulate import simulate
from tests.support.known_facts import known_models

_TABLE = load_device_table()


def candidate(name: str) -> Candidate:
    known = find_known_model(name, known_models())
    assert known is not None
    return Candidate(name=name, figures=known.figures)


def suggested(device: str, *names: str, profile: Profile = Profile.CHAT) -> tuple[Suggestion, ...]:
    return suggest([candidate(n) for n in names], simulate(device), profile=profile, device_table=_TABLE)


def test_the_largest_that_fits_comes_first_and_what_does_not_is_left_out() -> None:
    found = suggested("RTX 4090", "Qwen3-4B", "Qwen3-8B", "Qwen3-32B", "Llama-3.3-70B")
    assert [s.name for s in found] == ["Qwen3-32B", "Qwen3-8B", "Qwen3-4B"]
    assert all(s.whole and s.total_bytes < 25 << 30 for s in found)


def test_small_models_keep_more_bits() -> None:
    quants = {s.name: s.quant for s in suggested("RTX 4090", "Qwen3-4B", "Qwen3-32B")}
    assert quants == {"Qwen3-4B": "Q8_0", "Qwen3-32B": "Q4_K_M"}


def test_what_was_trained_in_its_type_is_offered_in_no_other() -> None:
    assert [s.quant for s in suggested("RTX 4090", "gpt-oss-20b")] == ["MXFP4_MOE"]


def test_a_model_that_is_too_slow_for_the_task_is_left_out() -> None:
    for profile in (Profile.CHAT, Profile.AGENT):
        found = suggested("M3 Max 64GB", "Qwen2.5-32B", "Qwen3-30B-A3B", profile=profile)
        least = LEAST_TOKENS_PER_SECOND[profile]
        assert all((s.decode_tokens_per_second or 0) >= least for s in found)
        assert "Qwen3-30B-A3B" in {s.name for s in found}


def test_half_on_the_cpu_at_an_unknown_speed_is_no_suggestion() -> None:
    machine = simulate("RTX 3060")
    assert machine.cpu.bandwidth_gb_per_s is None
    assert suggested("RTX 3060", "Llama-3.3-70B") == ()


def test_a_model_that_was_trained_on_too_short_a_context_counts_for_half() -> None:
    (short,) = suggested("RTX 4090", "gemma-2-27b")
    long = structs.replace(short, trained_context_length=131_072)
    assert worth(short, Profile.CHAT) == worth(long, Profile.CHAT) / 2
    assert worth(short, Profile.BATCH) == worth(long, Profile.BATCH)
    names = [s.name for s in suggested("RTX 4090", "gemma-2-27b", "Qwen3-14B")]
    assert names == ["Qwen3-14B", "gemma-2-27b"]


def test_the_list_is_as_long_as_asked() -> None:
    names = ("Qwen3-4B", "Qwen3-8B", "Qwen3-14B")
    machine: Machine = simulate("RTX 4090")
    assert len(suggest([candidate(n) for n in names], machine, device_table=_TABLE, limit=2)) == 2


def test_a_machine_that_was_measured_to_be_slower_gets_smaller_models() -> None:
    names = ("Qwen3-8B", "Qwen3-32B")
    (fast,) = suggested("RTX 4090", "Qwen3-8B", profile=Profile.CODE)
    found = suggest(
        [candidate(n) for n in names],
        simulate("RTX 4090"),
        profile=Profile.CODE,
        device_table=_TABLE,
        own_ratios=(0.3,),
    )
    assert [s.name for s in found] == ["Qwen3-8B"]
    assert found[0].decode_tokens_per_second == pytest.approx(0.3 * (fast.decode_tokens_per_second or 0))
