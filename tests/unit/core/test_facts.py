"""Figures from headers: what is read, what is derived, and what is refused."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from localllm.core.errors import GGUFError
from localllm.core.facts import ModelFacts, facts_from_header
from localllm.core.gguf import GGUFHeader, Skipped, Value, parse_header
from localllm.core.launch import LaunchPlan
from localllm.core.memory import Estimator
from tests.support import gguf_bytes as g
from tests.support.family_headers import FAMILIES, family_header


def facts_of(data: bytes) -> ModelFacts:
    return facts_from_header(parse_header(g.MemorySource(data)))


def header(architecture: str, **keys: Value) -> GGUFHeader:
    """A header with 12 layers of the given architecture and no tensors."""
    defaults: dict[str, Value] = {
        "block_count": 12,
        "embedding_length": 512,
        "attention.head_count": 8,
        "attention.head_count_kv": 2,
        "vocab_size": 1000,
    }
    relative = defaults | {key.replace("__", "."): value for key, value in keys.items()}
    metadata: dict[str, Value] = {"general.architecture": architecture}
    metadata |= {f"{architecture}.{key}": value for key, value in relative.items()}
    return GGUFHeader(version=3, metadata=metadata, tensors=(), alignment=32, data_offset=0, size_bytes=0)


def test_a_plain_model() -> None:
    facts = facts_of(
        g.small_llama(g.uint32("general.file_type", 15), g.string("tokenizer.chat_template", "{{ tools }}"))
    )
    assert (facts.n_layer, facts.n_embd, facts.n_vocab, facts.n_ff) == (2, 64, 3, 128)
    assert facts.head_dim_k == 16
    assert facts.n_head_kv == (4, 4)
    assert facts.quant == "Q4_K_M"
    assert facts.capabilities == ("completion", "chat", "tools")
    assert facts.total_layers == 3
    assert not facts.tied_embeddings


def test_a_given_head_size_is_never_derived() -> None:
    assert facts_from_header(header("qwen3", attention__key_length=128)).head_dim_k == 128


def test_the_quant_of_a_file_without_a_type_is_that_of_most_weights() -> None:
    assert facts_of(g.small_llama()).quant == "F32"


@pytest.mark.parametrize(
    ("architecture", "sliding"),
    [
        ("gemma2", "SF" * 6),
        ("gemma3", "SSSSSF" * 2),
        ("gpt-oss", "SF" * 6),
        ("cohere2", "SSSF" * 3),
        ("smallthinker", "FSSS" * 3),
        ("llama", "F" * 12),
        ("phi3", "F" * 12),
    ],
)
def test_which_layers_slide(architecture: str, sliding: str) -> None:
    facts = facts_from_header(header(architecture, attention__sliding_window=4096))
    assert "".join("S" if s else "F" for s in facts.sliding_layers) == sliding


def test_a_pattern_in_the_header_wins() -> None:
    pattern = (True, True, False) * 4
    found = facts_from_header(
        header("gemma4", attention__sliding_window=512, attention__sliding_window_pattern=pattern)
    )
    assert found.sliding_layers == pattern
    period = facts_from_header(
        header("gemma3", attention__sliding_window=512, attention__sliding_window_pattern=2)
    )
    assert period.sliding_layers == (True, False) * 6


def test_a_family_without_a_window_in_its_header_has_none() -> None:
    assert facts_from_header(header("gemma3")).sliding_window is None


def test_shared_caches_have_no_cache_of_their_own() -> None:
    facts = facts_from_header(header("gemma4", attention__shared_kv_layers=4))
    assert facts.own_cache == (True,) * 8 + (False,) * 4


def test_layers_that_predict_further_tokens_keep_no_cache() -> None:
    assert facts_from_header(header("glm4moe", nextn_predict_layers=1)).own_cache == (True,) * 11 + (False,)


def test_a_hybrid_by_heads() -> None:
    heads = (0, 2) * 6
    facts = facts_from_header(header("lfm2", attention__head_count_kv=heads, shortconv__l_cache=3))
    assert facts.recurrent_layers == (True, False) * 6
    assert facts.own_cache == (False, True) * 6
    assert facts.state_elements == (1024, 0)


def test_a_hybrid_whose_layers_are_one_thing_each() -> None:
    heads, widths = (0, 2, 0) * 4, (0, 0, 512) * 4
    facts = facts_from_header(
        header("nemotron_h", attention__head_count_kv=heads, feed_forward_length=widths, ssm__state_size=8)
    )
    assert facts.recurrent_layers == (True, False, False) * 4
    assert facts.own_cache == (False, True, True) * 4
    assert facts.n_ff == 512


def test_predicting_layers_of_a_hybrid_keep_no_state() -> None:
    assert facts_from_header(header("qwen35", nextn_predict_layers=2)).recurrent_layers[-2:] == (False, False)


def test_a_hybrid_by_interval() -> None:
    facts = facts_from_header(
        header(
            "qwen3next", ssm__conv_kernel=4, ssm__inner_size=4096, ssm__state_size=128, ssm__group_count=16
        )
    )
    assert facts.recurrent_layers == (True, True, True, False) * 3
    assert facts.state_elements == (3 * 8192, 128 * 4096)


def test_a_layer_can_recur_and_attend() -> None:
    facts = facts_from_header(header("falcon-h1", ssm__conv_kernel=4, ssm__inner_size=64, ssm__state_size=8))
    assert all(facts.recurrent_layers)
    assert all(facts.own_cache)


def test_recurrent_families_have_no_cache() -> None:
    rwkv = facts_from_header(header("rwkv7", wkv__head_size=64, attention__head_count=0))
    assert not any(rwkv.own_cache)
    assert rwkv.state_elements == (1024, 512 * 64)


def test_latent_attention_needs_its_own_head_sizes() -> None:
    old = header("deepseek2", attention__kv_lora_rank=512)
    new = header("deepseek2", attention__kv_lora_rank=512, attention__key_length_mla=192)
    assert not facts_from_header(old).latent_attention
    assert facts_from_header(new).latent_attention


def test_an_encoder_embeds() -> None:
    facts = facts_from_header(header("bert"))
    assert facts.capabilities == ("embedding",)
    assert not any(facts.own_cache)
    assert not facts.causal


def test_an_unknown_architecture_is_read_by_its_keys() -> None:
    facts = facts_from_header(header("model-of-2030", expert_count=16, expert_used_count=2))
    assert facts.is_moe
    assert facts.expert_share == 0.125
    assert facts.own_cache == (True,) * 12


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (g.gguf([g.string("general.architecture", "clip")]), "vision projector"),
        (
            g.gguf([g.string("general.type", "mmproj"), g.string("general.architecture", "x")]),
            "vision projector",
        ),
        (
            g.gguf([g.string("general.type", "adapter"), g.string("general.architecture", "x")]),
            "LoRA adapter",
        ),
        (g.gguf([g.string("general.type", "imatrix")]), "importance matrix"),
        (g.gguf([g.uint32("x", 1)]), "does not name an architecture"),
        (g.small_llama(drop="llama.block_count"), "lacks llama.block_count"),
        (g.small_llama(drop="llama.embedding_length"), "lacks llama.embedding_length"),
        (g.small_llama(g.uint32("llama.expert_count", 1 << 30)), "expert_count is 1073741824"),
        (g.small_llama(g.string("llama.attention.head_count_kv", "two")), "not a whole number"),
        (
            g.small_llama(g.pair("llama.attention.key_length", g.FLOAT32, struct.pack("<f", float("nan")))),
            "not a whole number",
        ),
        (
            g.small_llama(g.array("llama.attention.head_count_kv", g.INT32, 1, struct.pack("<i", 2))),
            "1 entries for 2 layers",
        ),
        (
            g.small_llama(g.strings("tokenizer.ggml.tokens", []), drop="tokenizer.ggml.tokens"),
            "vocabulary has 0",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_with_its_reason(data: bytes, reason: str) -> None:
    with pytest.raises(GGUFError, match=reason):
        facts_of(data)


@pytest.mark.parametrize("count", [0, 1 << 20])
def test_absurd_layer_counts_are_refused(count: int) -> None:
    with pytest.raises(GGUFError, match="block_count"):
        facts_from_header(header("llama", block_count=count))


_ODD_VALUES = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.floats(),
    st.booleans(),
    st.text(max_size=5),
    st.just(Skipped(1 << 40)),
    st.lists(st.one_of(st.integers(-5, 1 << 33), st.floats(), st.booleans()), max_size=40).map(tuple),
)


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(sorted(FAMILIES)), st.data())
def test_odd_values_are_refused_or_planned_with(architecture: str, data: st.DataObject) -> None:
    plain = family_header(architecture)
    metadata = dict(plain.metadata)
    for key in data.draw(st.lists(st.sampled_from(sorted(metadata)[1:]), max_size=3)):
        metadata[key] = data.draw(_ODD_VALUES)
    try:
        facts = facts_from_header(structs.replace(plain, metadata=metadata))
    except GGUFError as error:
        assert error.message
        return
    launch = LaunchPlan(
        model_path="", context_length=2048, parallel=2, gpu_layers=data.draw(st.integers(0, 40))
    )
    assert Estimator(facts, ()).estimate(launch).total_bytes >= 0
