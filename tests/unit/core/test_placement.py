"""Which device holds which layer."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.gguf import TensorInfo
from localllm.core.launch import LaunchPlan
from localllm.core.placement import (
    CPU,
    Placement,
    group_weights,
    is_expert,
    layer_of,
    place,
    staged_weights,
    weights_per_device,
)
from tests.support.known_facts import facts_of


def placed(gpu_layers: int, split: tuple[float, ...], *, cpu_moe_layers: int = 0) -> Placement:
    plan = LaunchPlan(model_path="", context_length=1, gpu_layers=gpu_layers, cpu_moe_layers=cpu_moe_layers)
    return place(facts_of("Llama-3.1-8B"), plan, split)


def test_nothing_is_offloaded_without_layers_or_without_a_gpu() -> None:
    for placement in (placed(0, (1.0,)), placed(33, ())):
        assert placement.used == {CPU}


def test_the_output_goes_first_then_the_last_layers() -> None:
    assert placed(1, (1.0,)).output == 0
    assert placed(1, (1.0,)).layers == (CPU,) * 32
    assert placed(3, (1.0,)).layers == (CPU,) * 30 + (0, 0)


def test_more_layers_than_there_are_is_all() -> None:
    assert placed(999, (1.0,)) == placed(33, (1.0,))


def test_a_split_is_in_proportion_and_in_order() -> None:
    layers = placed(33, (3.0, 1.0)).layers
    assert layers == (0,) * 25 + (1,) * 7
    assert placed(33, (3.0, 1.0)).output == 1


def test_a_gpu_without_a_share_gets_nothing() -> None:
    assert placed(33, (0.0, 1.0)).used == {1}
    assert placed(33, (1.0, 0.0)).used == {0}


@given(st.integers(0, 40), st.lists(st.floats(0, 100), min_size=1, max_size=4))
def test_layers_are_contiguous_and_in_order(gpu_layers: int, split: list[float]) -> None:
    placement = placed(gpu_layers, tuple(split))
    devices = [*placement.layers, placement.output]
    assert devices == sorted(devices)
    assert sum(device != CPU for device in devices) == min(gpu_layers, 33)


@pytest.mark.parametrize(
    ("name", "layer", "expert"),
    [
        ("blk.17.attn_q.weight", 17, False),
        ("blk.3.ffn_gate_up_exps.weight", 3, True),
        ("blk.3.ffn_down_exps.weight", 3, True),
        ("blk.3.ffn_up_shexp.weight", 3, False),
        ("output.weight", None, False),
    ],
)
def test_names(name: str, layer: int | None, expert: bool) -> None:
    assert layer_of(name) == layer
    assert is_expert(name) is expert


TENSORS = (
    TensorInfo("token_embd.weight", (64, 10), "F32", 0, 100),
    TensorInfo("output_norm.weight", (64,), "F32", 0, 1),
    TensorInfo("blk.0.attn_q.weight", (64, 64), "F32", 0, 10),
    TensorInfo("blk.0.ffn_up_exps.weight", (64, 64, 4), "F32", 0, 40),
    TensorInfo("blk.0.ffn_down_exps.weight", (64, 64, 4), "F32", 0, 60),
    TensorInfo("blk.1.attn_q.weight", (64, 64), "F32", 0, 20),
)


def test_experts_can_stay_behind() -> None:
    groups = group_weights(TENSORS, 2, tied=True)
    on_gpu = Placement((0, 0), 0, 0)
    behind = Placement((0, 0), 0, 1)
    assert weights_per_device(groups, on_gpu, 1) == (100, 1 + 100 + 10 + 100 + 20)
    assert weights_per_device(groups, behind, 1) == (100 + 100, 1 + 100 + 10 + 20)
    assert weights_per_device(groups, Placement((CPU, CPU), CPU, 0), 1) == (100 + 1 + 10 + 100 + 20, 0)


def test_what_passes_through_a_gpu() -> None:
    groups = group_weights(TENSORS, 2, tied=True)
    assert staged_weights(groups, Placement((0, 0), 0, 0)).bytes == 0
    experts = staged_weights(groups, Placement((0, 0), 0, 1))
    assert (experts.bytes, experts.expert) == ((40 + 60) * 11 // 10, True)
    dense = staged_weights(groups, Placement((0, CPU), 0, 0))
    assert (dense.bytes, dense.expert) == (20, False)


def test_cuda_pads_rows() -> None:
    odd = (TensorInfo("blk.0.attn_q.weight", (2880, 1), "Q8_0", 0, 3060),)
    assert group_weights(odd, 1, tied=False).layers[0].dense == 3060
    padded = group_weights(odd, 1, tied=False, cuda=True).layers[0].dense
    assert padded == -(-(3060 + (512 - 2880 % 512) // 32 * 34) // 128) * 128
