"""Cache sizes against load logs of llama.cpp, in MiB as logged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from localllm.core.kv_cache import bytes_per_token, layer_caches, padded, sliding_cells, total_context
from localllm.core.launch import KV_CACHE_TYPES, LaunchPlan
from localllm.core.units import MIB
from tests.support.known_facts import facts_of


def plan(context: int, **changes: object) -> LaunchPlan:
    return structs.replace(LaunchPlan(model_path="", context_length=context), **changes)


def sizes(name: str, launch: LaunchPlan, *, cuda: bool = False) -> tuple[float, float]:
    caches = layer_caches(facts_of(name), launch, cuda=cuda)
    return sum(c.keys_values for c in caches) / MIB, sum(c.state for c in caches) / MIB


@pytest.mark.parametrize(
    ("model", "context", "kv_type", "logged"),
    [
        ("Llama-3.1-8B", 16384, "f16", 2048),
        ("Llama-3.1-8B", 131072, "q8_0", 8704),
        ("Llama-3.1-8B", 32768, "q4_0", 1152),
        ("gemma-7b", 4096, "f16", 1792),
        ("Qwen3-30B-A3B", 65536, "f16", 6144),
        ("Qwen2.5-7B", 32768, "f16", 1792),
        ("Qwen3-0.6B", 256, "f16", 28),
        ("Mistral-7B", 4096, "f16", 512),
        ("Phi-3-mini", 4096, "f16", 1536),
        ("mistral-small 22B", 49152, "q8_0", 5712),
        ("Mistral-Small-24B", 256, "f16", 40),
        ("GLM-4-32B", 32768, "f16", 1952),
        ("Command-R-35B", 4096, "f16", 5120),
    ],
)
def test_attention_caches_as_logged(model: str, context: int, kv_type: str, logged: float) -> None:
    found, state = sizes(model, plan(context, kv_type_k=kv_type, kv_type_v=kv_type))
    assert found == logged
    assert state == 0


@pytest.mark.parametrize(
    ("model", "context", "sequences", "kv", "state"),
    [
        ("Qwen3.6-35B-A3B", 8192, 8, 160, 502.5),
        ("Qwen3.6-35B-A3B", 32768, 1, 640, 62.81),
        ("Qwen3.6-27B", 32768, 1, 2048, 149.62),
        ("Qwen3.5-9B", 65536, 4, 2048, 201.0),
        ("Qwen3-Next-80B-A3B", 16384, 4, 384, 301.5),
    ],
)
def test_hybrids_keep_a_state_per_sequence(
    model: str, context: int, sequences: int, kv: float, state: float
) -> None:
    found = sizes(model, plan(context // sequences, parallel=sequences, unified_kv=False))
    assert found[0] == kv
    assert found[1] == pytest.approx(state, abs=0.01)


def test_keys_and_values_may_differ_in_type() -> None:
    assert sizes("Llama-3.1-8B", plan(32768, kv_type_k="q8_0", kv_type_v="q4_0"))[0] == 1664


def test_cuda_pads_quantised_rows() -> None:
    """gemma-2b, q8_0: 153.00 MiB of cache, and CUDA logs 153.01."""
    launch = plan(16384, kv_type_k="q8_0", kv_type_v="q8_0")
    assert sizes("gemma-2b", launch)[0] == 153
    assert sizes("gemma-2b", launch, cuda=True)[0] == pytest.approx(153.01, abs=0.002)


def test_a_sliding_window_keeps_the_window_and_a_batch() -> None:
    """gpt-oss-120b at 65,536 × 4 sequences: 2304 MiB of full layers, 36 of 1,024 cells (a log)."""
    facts = facts_of("gpt-oss-120b", "MXFP4_MOE")
    launch = plan(16384, parallel=4)
    assert sliding_cells(facts, launch) == 1024
    assert sum(c.keys_values for c in layer_caches(facts, launch)) == (2304 + 36) * MIB


def test_a_window_per_sequence_when_the_cache_is_shared() -> None:
    facts = facts_of("gemma-3-4b")
    assert sliding_cells(facts, plan(8192)) == padded(1024 + 512)
    assert sliding_cells(facts, plan(8192, parallel=4)) == padded(4 * 1024 + 512)
    assert sliding_cells(facts, plan(8192, parallel=4, unified_kv=False)) == padded(1024 + 512)
    assert sliding_cells(facts, plan(8192, parallel=4), spare_sequences=2) == padded(6 * 1024 + 512)
    assert sliding_cells(facts, plan(8192, swa_full=True)) == 8192


def test_latent_attention_keeps_one_row_and_no_values() -> None:
    facts = facts_of("DeepSeek-V2-Lite")
    found = sum(c.keys_values for c in layer_caches(facts, plan(8192)))
    assert found == 27 * 8192 * 576 * 2


def test_an_indexer_adds_its_keys() -> None:
    facts = structs.replace(facts_of("Llama-3.1-8B"), indexer_dim=128)
    plain = sum(c.keys_values for c in layer_caches(facts_of("Llama-3.1-8B"), plan(8192)))
    assert sum(c.keys_values for c in layer_caches(facts, plan(8192))) - plain == 32 * 8192 * 128 * 2


@given(
    st.sampled_from(["Llama-3.1-8B", "gemma-3-4b", "Qwen3.6-27B", "DeepSeek-V2-Lite", "gpt-oss-20b"]),
    st.integers(1, 1 << 18),
    st.integers(1, 16),
    st.sampled_from(KV_CACHE_TYPES),
    st.booleans(),
)
def test_more_context_never_takes_less(
    model: str, context: int, parallel: int, kv_type: str, unified: bool
) -> None:
    def total(tokens: int) -> int:
        launch = plan(tokens, parallel=parallel, kv_type_k=kv_type, kv_type_v=kv_type, unified_kv=unified)
        return sum(c.total for c in layer_caches(facts_of(model), launch))

    assert 0 < total(context) <= total(context + 1)


@given(st.integers(1, 1 << 20), st.integers(1, 64))
def test_the_context_is_padded_once(context: int, parallel: int) -> None:
    found = total_context(plan(context, parallel=parallel))
    assert found % 256 == 0
    assert context * parallel <= found < context * parallel + 256


def test_one_token_costs_what_the_cache_grows_by() -> None:
    facts = facts_of("Llama-3.1-8B")
    grown = sum(c.total for c in layer_caches(facts, plan(512))) - sum(
        c.total for c in layer_caches(facts, plan(256))
    )
    assert grown == 256 * bytes_per_token(facts, "f16", "f16")
