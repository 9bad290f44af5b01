"""Choosing how to load: what is given up first, what is never overruled, and what is said when nothing fits."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from localllm.core.budget import budget_of
from localllm.core.errors import DoesNotFit
from localllm.core.facts import ModelFacts
from localllm.core.machine import Holder, Machine
from localllm.core.memory import Estimator
from localllm.core.plan import CPU_UBATCH, Plan, Profile, Wish, plan_load
from localllm.core.units import GIB
from tests.support.known_facts import facts_of
from tests.support.plain_machine import machine


def plan(facts: ModelFacts, where: Machine, wish: Wish | None = None) -> Plan:
    return plan_load(facts, where, wish or Wish(), model_path="/m.gguf")


LLAMA_8B = "Llama-3.1-8B"


def test_a_roomy_gpu_takes_all_layers_and_several_sequences() -> None:
    found = plan(facts_of(LLAMA_8B), machine(32, 24))
    assert found.launch.gpu_layers == 33
    assert found.launch.context_length == 32768
    assert found.launch.parallel == 2
    assert "All 33 layers on RTX 4090" in found.reason
    assert found.warnings == ()
    assert found.speed is not None
    assert found.speed.decode_low < found.speed.decode < found.speed.decode_high


def test_a_smaller_gpu_gives_up_sequences_then_context_before_layers() -> None:
    found = plan(facts_of(LLAMA_8B), machine(32, 8))
    assert found.launch.gpu_layers == 33
    assert found.launch.parallel == 1
    assert found.launch.context_length == 8192


def test_a_wished_context_is_kept_and_layers_move_instead() -> None:
    found = plan(facts_of(LLAMA_8B), machine(32, 8), Wish(context_length=65536))
    assert found.launch.context_length == 65536
    assert 0 < found.launch.gpu_layers < 33
    assert "the rest on the CPU" in found.reason


def test_wished_layers_are_kept() -> None:
    found = plan(facts_of(LLAMA_8B), machine(32, 24), Wish(gpu_layers=10))
    assert found.launch.gpu_layers == 10


def test_experts_leave_the_gpu_before_layers() -> None:
    found = plan(facts_of("Qwen3-30B-A3B"), machine(64, 12))
    assert found.launch.gpu_layers == 49
    assert 0 < found.launch.cpu_moe_layers < 48
    assert "Experts of" in found.reason


def test_as_few_experts_as_must_be() -> None:
    facts, where = facts_of("Qwen3-30B-A3B"), machine(64, 12)
    found = plan(facts, where)
    fewer = structs.replace(found.launch, cpu_moe_layers=found.launch.cpu_moe_layers - 1)
    budget = budget_of(where)
    assert budget.fits(found.memory)
    assert not budget.fits(Estimator(facts, where.gpus).estimate(fewer))


def test_without_a_gpu_batches_are_small() -> None:
    found = plan(facts_of(LLAMA_8B), machine(32))
    assert found.launch.gpu_layers == 0
    assert found.launch.ubatch == CPU_UBATCH
    assert found.reason.startswith("Runs on the CPU")


def test_a_tuned_batch_is_kept() -> None:
    assert plan(facts_of(LLAMA_8B), machine(32), Wish(ubatch=128)).launch.ubatch == 128
    assert plan(facts_of(LLAMA_8B), machine(32), Wish(ubatch=512)).launch.ubatch == 512


def test_what_comes_with_the_model_is_in_the_plan() -> None:
    found = plan_load(
        facts_of(LLAMA_8B),
        machine(32),
        Wish(threads=3),
        model_path="/m.gguf",
        chat_template="{{ x }}",
        stop=["<end>"],
        mmproj_path="/p.gguf",
    ).launch
    assert (found.model_path, found.mmproj_path, found.chat_template) == ("/m.gguf", "/p.gguf", "{{ x }}")
    assert (found.stop, found.threads) == (("<end>",), 3)


def test_two_gpus_are_used_when_one_is_too_small() -> None:
    one = plan(facts_of(LLAMA_8B), machine(64, 24, 24))
    assert one.launch.tensor_split == (1.0, 0.0)
    assert one.memory.on("gpu0").weights > 0
    assert one.memory.on("gpu1").total == 0
    both = plan(facts_of("Llama-3.3-70B"), machine(64, 24, 24))
    assert len(both.launch.tensor_split) == 2
    assert both.launch.gpu_layers == 81
    assert both.memory.on("gpu1").weights > 0


def test_the_roomiest_gpu_is_taken_by_its_place() -> None:
    found = plan(facts_of(LLAMA_8B), machine(64, 8, 24))
    assert found.launch.tensor_split == (0.0, 1.0)
    assert found.launch.main_gpu == 1
    assert "RTX 4090 #1" in found.reason


def test_unified_memory_is_counted_once() -> None:
    facts = facts_of(LLAMA_8B)
    assert plan(facts, machine(16, 12, unified=True)).launch.gpu_layers == 33
    with pytest.raises(DoesNotFit):
        # the GPU may take 12 GiB, but there are only 4 in all
        plan(facts, machine(4, 12, unified=True))


def test_the_context_is_at_most_the_trained_one() -> None:
    found = plan(facts_of("Llama-2-7B"), machine(64, 80))
    assert found.launch.context_length == 4096


def test_a_longer_context_than_trained_is_given_only_by_force_and_warned_about() -> None:
    found = plan(facts_of("Llama-2-7B"), machine(64, 80), Wish(context_length=8192))
    assert found.launch.context_length == 4096
    assert "trained on 4096" in found.warnings[0] and "instead of the 8192" in found.warnings[0]
    forced = plan(facts_of("Llama-2-7B"), machine(64, 80), Wish(context_length=8192, force=True))
    assert forced.launch.context_length == 8192
    assert "trained on 4096" in forced.warnings[0] and "instead" not in forced.warnings[0]


@pytest.mark.parametrize(
    ("profile", "context", "parallel"),
    [
        (Profile.CHAT, 16384, 2),
        (Profile.CODE, 32768, 2),
        (Profile.AGENT, 65536, 2),
        (Profile.LONG_DOCUMENT, 131072, 1),
        (Profile.BATCH, 8192, 16),
    ],
)
def test_profiles_ask_for_what_they_need(profile: Profile, context: int, parallel: int) -> None:
    found = plan(facts_of(LLAMA_8B), machine(128, 80), Wish(profile=profile))
    assert (found.launch.context_length, found.launch.parallel) == (context, parallel)


def test_an_agent_on_a_short_model_is_warned() -> None:
    found = plan(facts_of("Llama-2-7B"), machine(64, 80), Wish(profile=Profile.AGENT))
    assert "Agents need 32k" in found.warnings[0]


def test_a_quantised_cache_turns_flash_attention_on() -> None:
    found = plan(facts_of(LLAMA_8B), machine(32, 24), Wish(kv_type="q8_0"))
    assert (found.launch.kv_type_k, found.launch.kv_type_v) == ("q8_0", "q8_0")
    assert found.launch.flash_attention == "on"


def test_an_embedding_is_computed_in_one_batch() -> None:
    found = plan(facts_of("Qwen3-0.6B"), machine(32), Wish(embedding=True))
    assert found.launch.embedding
    assert found.launch.batch == found.launch.ubatch == found.launch.context_length == 2048
    longer = plan(facts_of("Qwen3-0.6B"), machine(32), Wish(embedding=True, context_length=4096))
    assert longer.launch.ubatch == 4096
    assert longer.memory.compute_bytes > found.memory.compute_bytes


def test_heads_that_do_not_divide_keep_an_f16_cache() -> None:
    facts = structs.replace(facts_of(LLAMA_8B), head_dim_k=100, head_dim_v=100, n_head_kv=(1,) * 32)
    found = plan(facts, machine(32, 24), Wish(kv_type="q8_0"))
    assert found.launch.kv_type_k == "f16"
    assert "q8_0" in found.warnings[0]


def test_the_ledger_overrides_what_is_free() -> None:
    wish = Wish(available_bytes={"gpu0": 0})
    assert plan(facts_of(LLAMA_8B), machine(32, 24), wish).launch.gpu_layers == 0


def test_nothing_fits_and_every_way_out_is_computed() -> None:
    holder = Holder(4711, "other-engine", 9 * GIB)
    where = machine(3, 3, holders=(holder,))
    with pytest.raises(DoesNotFit) as caught:
        plan(facts_of(LLAMA_8B), where, Wish(context_length=32768, parallel=2, gpu_layers=33))
    error = caught.value
    ways = error.details["ways_out"]
    assert isinstance(ways, list)
    text = " ".join(ways)
    assert error.details["device"] == "gpu0"
    assert "2 → 1 parallel sequences frees 4.1 GiB" in text
    assert "KV cache f16 → q8_0 frees" in text
    assert "other-engine (process 4711) holds 9.0 GiB" in text


def test_a_smaller_quantisation_is_named_only_where_there_can_be_one() -> None:
    with pytest.raises(DoesNotFit) as caught:
        plan(facts_of(LLAMA_8B), machine(8, 5), Wish(context_length=8192, parallel=1, gpu_layers=33))
    assert "A quantisation smaller by" in " ".join(caught.value.details["ways_out"])  # type: ignore[arg-type]
    with pytest.raises(DoesNotFit) as caught:
        plan(facts_of("Qwen3-0.6B"), machine(1), Wish(context_length=40_960, parallel=16))
    assert "quantisation" not in " ".join(caught.value.details["ways_out"])  # type: ignore[arg-type]


def test_a_shorter_context_that_fits_is_named() -> None:
    with pytest.raises(DoesNotFit) as caught:
        plan(facts_of(LLAMA_8B), machine(8), Wish(context_length=65536, parallel=1))
    first = caught.value.details["ways_out"][0]  # type: ignore[index]
    assert first.startswith("Context 64k → ")
    assert first.endswith("and fits.")
    shorter = float(first.split("→ ")[1].split("k")[0]) * 1024
    found = plan(facts_of(LLAMA_8B), machine(8), Wish(context_length=int(shorter), parallel=1))
    assert found.launch.context_length == int(shorter)


def test_force_plans_what_does_not_fit_and_says_so() -> None:
    found = plan(facts_of("Llama-3.3-70B"), machine(8), Wish(force=True))
    assert "forced" in found.warnings[0]


def test_a_plan_takes_milliseconds() -> None:
    facts, where = facts_of("Llama-3.3-70B"), machine(64, 24, 24)
    plan(facts, where)
    began = time.process_time()
    plan(facts, where)
    assert time.process_time() - began < 0.15


@settings(deadline=None, max_examples=60)
@given(
    st.sampled_from([LLAMA_8B, "Qwen3-30B-A3B", "gemma-3-4b", "Qwen3.6-27B"]),
    st.floats(0.5, 64),
    st.lists(st.floats(0.5, 80), max_size=2),
    st.sampled_from([None, 1024, 40_000]),
    st.sampled_from([None, 1, 6]),
)
def test_whatever_is_planned_fits(
    model: str, ram: float, gpus: list[float], context: int | None, parallel: int | None
) -> None:
    where = machine(ram, *gpus)
    try:
        found = plan(facts_of(model), where, Wish(context_length=context, parallel=parallel))
    except DoesNotFit as error:
        assert error.details["needed_bytes"] > error.details["available_bytes"]  # type: ignore[operator]
        return
    assert budget_of(where).fits(found.memory)
    assert context is None or found.launch.context_length == context
    assert parallel is None or found.launch.parallel == parallel
