"""Quants by name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.quant import BITS_PER_WEIGHT, QUALITY, base_name, dominant_type, quality_of
from localllm.core.quant_mix import RECIPES


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("Q4_K_M", "Q4_K_M"),
        ("q8_0", "Q8_0"),
        ("UD-Q4_K_XL", "Q4_K_M"),
        ("UD-IQ3_XXS", "IQ3_XXS"),
        ("Q6_K_L", "Q6_K"),
        ("Q2_K_L", "Q2_K"),
        ("MXFP4", "MXFP4_MOE"),
        ("mystery", "MYSTERY"),
    ],
)
def test_variants_count_as_the_mix_they_are_named_after(name: str, base: str) -> None:
    assert base_name(name) == base


def test_every_recipe_has_its_bits() -> None:
    assert set(RECIPES) <= set(BITS_PER_WEIGHT)


def test_measured_quality_gets_worse_with_fewer_bits() -> None:
    measured = [
        (BITS_PER_WEIGHT[name], q.mean_kld) for name, q in QUALITY.items() if q.source.startswith("mean")
    ]
    ordered = [kld for _, kld in sorted(measured, reverse=True)]
    assert all(kld is not None for kld in ordered)
    assert ordered[0] == min(k for k in ordered if k is not None)
    assert ordered[-1] == max(k for k in ordered if k is not None)


def test_unknown_quality_is_unknown() -> None:
    assert quality_of("mystery") is None
    worst = quality_of("IQ1_S")
    assert worst is not None
    assert "not advised" in worst.words


def test_a_file_without_tensors_has_no_type() -> None:
    assert dominant_type(()) == "unknown"


@given(st.text(max_size=30))
def test_any_name_has_a_base(name: str) -> None:
    assert base_name(base_name(name)) == base_name(name)
