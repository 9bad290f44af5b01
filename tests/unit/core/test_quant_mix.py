"""Recipes of named quants against the sizes that llama-quantize's dry run printed."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.derive import facts_from_figures
from localllm.core.ggml import BY_NAME
from localllm.core.known_models import find_known_model, parse_known_models
from localllm.core.quant_mix import RECIPES, MixTarget, Shape, is_quantised, mixed, tensor_bytes
from localllm.hardware.assets import asset_path

_SIZES = json.loads((Path(__file__).parents[2] / "data" / "quant_sizes.json").read_text())
_KNOWN = parse_known_models(asset_path("known_models.jsonl").read_text(encoding="utf-8"))


@pytest.mark.parametrize("key", _SIZES)
def test_a_vanilla_file_has_the_size_the_recipe_gives(key: str) -> None:
    name, quant = key.split("|")
    known = find_known_model(name, _KNOWN)
    assert known is not None
    facts = facts_from_figures(known.figures, quant)
    assert facts.parameters == _SIZES[key]["params"]
    assert len(facts.tensors) == _SIZES[key]["tensors"]
    size_mib = sum(tensor.size_bytes for tensor in facts.tensors) / 2**20
    assert size_mib == pytest.approx(_SIZES[key]["size_mib"], rel=0.001)


def target(**changes: object) -> MixTarget:
    figures = {"architecture": "llama", "n_layer": 32, "query_heads_per_key": 4} | changes
    return MixTarget(**figures)  # type: ignore[arg-type]


def types(quant: str, name: str, *, layers: int = 32, width: int = 4096, **changes: object) -> list[str]:
    shapes = [Shape(f"blk.{i}.{name}.weight", (width, 1024)) for i in range(layers)]
    return [t.type for t in mixed(shapes, quant, target(n_layer=layers, **changes))]


def test_more_bits_go_to_the_ends_and_every_third_layer() -> None:
    found = types("Q4_K_M", "ffn_down", layers=16)
    assert "".join("6" if kind == "Q6_K" else "4" for kind in found) == "6644644644644666"


def test_rows_that_do_not_divide_fall_back() -> None:
    assert set(types("Q4_K_M", "attn_q", width=992)) == {"Q5_0"}
    assert set(types("Q6_K", "attn_q", width=992)) == {"Q8_0"}
    assert set(types("IQ4_XS", "attn_q", width=992)) == {"IQ4_NL"}
    assert set(types("Q4_K_M", "attn_q", width=1000)) == {"F16"}


def test_eight_experts_get_better_attention() -> None:
    assert set(types("Q4_K_M", "attn_k", n_expert=8)) == {"Q8_0"}
    assert set(types("Q4_K_M", "attn_v", n_expert=8)) == {"Q8_0"}
    assert set(types("Q4_K_M", "attn_output", n_expert=8)) == {"Q5_K"}


def test_seventy_billion_gets_better_values() -> None:
    assert "Q4_K" not in types("Q4_K_M", "attn_v", layers=80)


def test_an_importance_matrix_changes_the_first_layers_of_q4_0() -> None:
    plain = types("Q4_0", "ffn_down")
    guided = types("Q4_0", "ffn_down", importance_matrix=True)
    assert set(plain) == {"Q4_0"}
    assert guided == ["Q4_1"] * 4 + ["Q4_0"] * 28


def test_a_tied_embedding_is_stored_as_an_output() -> None:
    embedding = [Shape("token_embd.weight", (4096, 1000))]
    assert mixed(embedding, "Q4_K_M", target())[0].type == "Q4_K"
    assert mixed(embedding, "Q4_K_M", target(tied_embeddings=True))[0].type == "Q6_K"


def test_mxfp4_is_for_experts_only() -> None:
    shapes = [Shape("blk.0.ffn_up_exps.weight", (2880, 2880, 32)), Shape("blk.0.attn_q.weight", (2880, 4096))]
    assert [t.type for t in mixed(shapes, "MXFP4_MOE", target(n_expert=32))] == ["MXFP4", "Q8_0"]


@pytest.mark.parametrize(
    "name",
    [
        "blk.0.attn_norm.weight",
        "blk.0.ffn_gate_inp.weight",
        "blk.0.ssm_conv1d.weight",
        "blk.0.attn_q.bias",
        "position_embd.weight",
        "blk.0.time_mix_w1.weight",
    ],
)
def test_delicate_tensors_stay_as_they_are(name: str) -> None:
    assert not is_quantised(Shape(name, (4096, 64)))


@given(
    st.sampled_from(sorted(RECIPES)), st.integers(1, 80), st.sampled_from([512, 1024, 4096]), st.booleans()
)
def test_every_recipe_types_every_tensor(quant: str, layers: int, width: int, matrix: bool) -> None:
    shapes = [
        Shape(f"blk.{i}.{name}.weight", (width, 64))
        for i in range(layers)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_gate", "ffn_down")
    ]
    typed = mixed(shapes, quant, target(n_layer=layers, importance_matrix=matrix))
    for tensor in typed:
        assert tensor_bytes(tensor) == BY_NAME[tensor.type].row_bytes(width) * 64
        assert width % BY_NAME[tensor.type].block_elements == 0


@given(st.integers(1, 120))
def test_better_quants_are_larger(layers: int) -> None:
    shapes = [
        Shape(f"blk.{i}.{name}.weight", (4096, 512))
        for i in range(layers)
        for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")
    ]

    def size(quant: str) -> int:
        return sum(map(tensor_bytes, mixed(shapes, quant, target(n_layer=layers))))

    ladder = [
        size(q) for q in ("Q2_K", "Q3_K_S", "Q3_K_M", "Q4_K_S", "Q4_K_M", "Q5_K_M", "Q6_K", "Q8_0", "F16")
    ]
    assert ladder == sorted(ladder)
    assert math.isclose(ladder[-1], layers * 7 * 4096 * 512 * 2)
