"""Projectors: recognised, sized, and refused when they lie."""

from __future__ import annotations

import pytest

from localllm.core.errors import GGUFError
from localllm.core.gguf import GGUFHeader, TensorInfo, Value
from localllm.core.projector import projector_bytes
from localllm.core.units import MIB


def header(**figures: Value) -> GGUFHeader:
    metadata: dict[str, Value] = {"general.architecture": "clip"}
    metadata |= {f"clip.vision.{name.replace('__', '.')}": value for name, value in figures.items()}
    return GGUFHeader(
        version=3,
        metadata=metadata,
        tensors=(TensorInfo("v.blk.0.attn_q.weight", (1024, 1024), "F16", 0, 2 * MIB),),
        alignment=32,
        data_offset=0,
        size_bytes=2 * MIB,
    )


def test_weights_and_one_image() -> None:
    clip = header(image_size=336, patch_size=14, embedding_length=1024, attention__head_count=16)
    patches = 576
    assert projector_bytes(clip) == 2 * MIB + 4 * patches * 1024 * 4 + patches * patches * 16 * 4


def test_a_larger_image_takes_more() -> None:
    small, large = (projector_bytes(header(image_size=size, patch_size=14)) for size in (336, 896))
    assert large > 4 * small


def test_a_language_model_is_no_projector() -> None:
    with pytest.raises(GGUFError, match="not a vision projector"):
        projector_bytes(
            GGUFHeader(
                version=3,
                metadata={"general.architecture": "llama"},
                tensors=(),
                alignment=32,
                data_offset=0,
                size_bytes=0,
            )
        )


@pytest.mark.parametrize("value", [0, 1 << 20, "large", True])
def test_an_absurd_image_is_refused(value: Value) -> None:
    with pytest.raises(GGUFError, match="image_size"):
        projector_bytes(header(image_size=value))
