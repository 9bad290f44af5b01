"""The table of tensor types against the gguf package's."""

from __future__ import annotations

import gguf
import pytest

from localllm.core.ggml import BY_NAME, DROPPED_TYPES, TENSOR_TYPES, tensor_type


@pytest.mark.parametrize("kind", list(gguf.GGML_QUANT_SIZES), ids=lambda kind: kind.name)
def test_blocks_as_the_gguf_package_has_them(kind: gguf.GGMLQuantizationType) -> None:
    if kind.name == "Q8_1":
        pytest.skip("never stored in files; the package counts its sums in F32, ggml in F16")
    found = TENSOR_TYPES[int(kind)]
    assert found.name == kind.name
    assert (found.block_elements, found.block_bytes) == gguf.GGML_QUANT_SIZES[kind]


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("Q8_0", 8.5),
        ("Q6_K", 6.5625),
        ("Q4_K", 4.5),
        ("MXFP4", 4.25),
        ("IQ4_XS", 4.25),
        ("IQ1_S", 1.5625),
        ("F16", 16),
    ],
)
def test_bits_per_weight(name: str, bits: float) -> None:
    assert tensor_type(name).bits_per_weight == bits


def test_names_are_found_in_either_case() -> None:
    assert tensor_type("q8_0") is BY_NAME["Q8_0"]
    with pytest.raises(KeyError):
        tensor_type("q9")


def test_dropped_types_are_not_known_ones() -> None:
    assert not set(DROPPED_TYPES) & set(TENSOR_TYPES)
