"""Estimated rates against a few measured ones, and the shape of the estimate."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from localllm.core.device_table import DeviceRow, match_device
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device, DeviceKind
from localllm.core.pace import generation_of, pace_of, pace_of_row
from localllm.core.placement import CPU, Placement
from localllm.core.speed import (
    SpeedEstimate,
    active_parameters,
    corrected,
    estimate_from_paces,
    estimate_speed,
)
from localllm.hardware.devices import load_device_table
from tests.support.known_facts import facts_of
from tests.support.plain_machine import machine

_TABLE = load_device_table()


def row(name: str) -> DeviceRow:
    found = match_device(name, _TABLE)
    assert found is not None
    return found


def on_gpu(device: str, model: str, quant: str, *, depth: int = 0) -> SpeedEstimate:
    facts = facts_of(model, quant)
    plan = LaunchPlan(model_path="", context_length=max(4096, depth), gpu_layers=facts.total_layers)
    placement = Placement((0,) * facts.n_layer, 0, 0)
    return estimate_from_paces(facts, plan, placement, {0: pace_of_row(row(device))}, depth=depth)


@pytest.mark.parametrize(
    ("device", "model", "quant", "depth", "measured"),
    [
        ("RTX 4090", "Llama-2-7B", "Q4_0", 0, 188.96),
        ("Apple M2 Max", "Llama-2-7B", "Q8_0", 0, 41.83),
        ("RTX 5070", "Qwen2.5-14B", "Q4_K_M", 0, 56.69),
        ("RTX 4080", "Llama-3-8B", "F16", 0, 40.29),
        ("DGX Spark (GB10)", "gpt-oss-120b", "MXFP4_MOE", 0, 58.72),
        ("DGX Spark (GB10)", "gpt-oss-120b", "MXFP4_MOE", 32768, 42.76),
        ("DGX Spark (GB10)", "Qwen3-30B-A3B", "Q8_0", 0, 61.06),
        ("DGX Spark (GB10)", "Qwen3-30B-A3B", "Q8_0", 32768, 30.21),
        ("DGX Spark (GB10)", "Qwen2.5-7B", "Q8_0", 32768, 22.51),
    ],
)
def test_decoding_as_measured(device: str, model: str, quant: str, depth: int, measured: float) -> None:
    found = on_gpu(device, model, quant, depth=depth)
    assert found.decode == pytest.approx(measured, rel=0.12)
    assert found.decode_low < measured < found.decode_high


def test_the_reference_run_is_reproduced() -> None:
    for name in ("RTX 4090", "RTX 3060", "Apple M1 Pro"):
        device = row(name)
        assert device.decode_tokens_per_s is not None
        assert on_gpu(name, "Llama-2-7B", "Q4_0").decode == pytest.approx(
            device.decode_tokens_per_s, rel=0.02
        )


def test_a_device_nobody_measured_has_a_wider_range() -> None:
    known, unknown = on_gpu("RTX 4090", "Llama-2-7B", "Q4_0"), on_gpu("RTX 3060 Ti", "Llama-2-7B", "Q4_0")
    assert unknown.decode_high / unknown.decode_low > known.decode_high / known.decode_low
    assert "typical for Ampere" in unknown.reason
    assert "fitted to a llama.cpp run on GeForce RTX 4090" in known.reason


def test_experts_make_decoding_cheap() -> None:
    assert (
        on_gpu("RTX 4090", "Qwen3-30B-A3B", "Q4_K_M").decode
        > 2 * on_gpu("RTX 4090", "Qwen3-32B", "Q4_K_M").decode
    )


def test_active_parameters_leave_unused_experts_out() -> None:
    assert active_parameters(facts_of("Qwen3-30B-A3B")) == pytest.approx(3.03e9, rel=0.02)


def test_layers_on_the_cpu_add_their_time() -> None:
    facts, where = facts_of("Llama-3.1-8B"), machine(32, 24)
    base = LaunchPlan(model_path="", context_length=4096)

    def rate(layers: int) -> SpeedEstimate:
        found = estimate_speed(facts, structs.replace(base, gpu_layers=layers), where.gpus, where.cpu, _TABLE)
        assert found is not None
        return found

    assert rate(33).decode > rate(20).decode > rate(0).decode
    assert "Test CPU" in rate(20).reason
    assert "RTX 4090" in rate(20).reason
    assert "Test CPU" not in rate(33).reason


def test_an_unknown_bandwidth_gives_no_figure() -> None:
    facts, where = facts_of("Llama-3.1-8B"), machine(32)
    blind = structs.replace(where.cpu, bandwidth_gb_per_s=None)
    plan = LaunchPlan(model_path="", context_length=4096)
    assert estimate_speed(facts, plan, (), blind) is None


def test_own_bandwidth_counts_before_the_table() -> None:
    device = Device(
        id="gpu0",
        kind=DeviceKind.GPU,
        name="NVIDIA GeForce RTX 4090",
        total_bytes=24 << 30,
        free_bytes=24 << 30,
        margin_bytes=0,
        bandwidth_gb_per_s=504.0,
    )
    slow, fast = pace_of(device, _TABLE), pace_of(structs.replace(device, bandwidth_gb_per_s=None), _TABLE)
    assert slow is not None
    assert fast is not None
    assert slow.bytes_per_s == pytest.approx(fast.bytes_per_s / 2)


def test_own_measurements_move_the_figure_and_make_the_range() -> None:
    plain = on_gpu("RTX 4090", "Llama-3.1-8B", "Q4_K_M")
    assert corrected(plain, ()) is plain
    one = corrected(plain, (0.8,))
    assert one.decode == pytest.approx(plain.decode * 0.8)
    assert one.decode_low == pytest.approx(plain.decode * 0.8 * 0.88)
    assert "×0.80 by 1 own" in one.reason
    several = corrected(plain, (0.5, 0.8, 1.2))
    assert several.decode_low == pytest.approx(plain.decode * 0.5)
    assert several.decode_high == pytest.approx(plain.decode * 1.2)


@pytest.mark.parametrize(
    ("name", "generation"),
    [
        ("NVIDIA GeForce RTX 5090", "Blackwell"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "Blackwell"),
        ("NVIDIA RTX 6000 Ada Generation", "Ada"),
        ("NVIDIA A100-SXM4-80GB", "datacenter HBM"),
        ("NVIDIA GeForce GTX 1050 Ti", "Pascal"),
        ("AMD Radeon RX 7900 XT", "RDNA 3"),
        ("Apple M4 Pro", "Apple M3 or newer"),
        ("Intel Arc B580", "Battlemage"),
        ("Something Else 9000", "unknown"),
    ],
)
def test_generations_by_name(name: str, generation: str) -> None:
    assert generation_of(name).name == generation


@given(
    st.sampled_from(_TABLE),
    st.sampled_from(["Llama-3.2-1B", "Llama-3.1-8B", "Qwen3-30B-A3B"]),
    st.integers(0, 100_000),
)
def test_estimates_are_sane_everywhere(device: DeviceRow, model: str, depth: int) -> None:
    facts = facts_of(model)
    plan = LaunchPlan(model_path="", context_length=max(4096, depth), gpu_layers=facts.total_layers)
    place = Placement((CPU,) * facts.n_layer, CPU, 0)
    found = estimate_from_paces(facts, plan, place, {CPU: pace_of_row(device)}, depth=depth)
    empty = estimate_from_paces(facts, plan, place, {CPU: pace_of_row(device)})
    assert 0 < found.decode_low < found.decode < found.decode_high
    assert found.decode <= empty.decode
    assert found.prefill is not None
    assert found.prefill > 0
