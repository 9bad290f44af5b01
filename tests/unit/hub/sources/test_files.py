from __future__ import annotations

import pytest

from localllm.core.errors import ModelAmbiguous, NotFound
from localllm.hub.sources.base import RemoteFile
from localllm.hub.sources.files import (
    distinct,
    projectors_of,
    variant_of_quant,
    variant_with_file,
    variants_of,
)


def files(*names: str) -> list[RemoteFile]:
    return [
        RemoteFile(source="hugging_face", name=name, url=f"https://x/{name}", size_bytes=1000 - place)
        for place, name in enumerate(names)
    ]


def test_quants_come_from_the_names_or_the_folders() -> None:
    variants = variants_of(
        files(
            "Q3-8B-Q8_0.gguf",
            "Q3-8B.Q4_K_M.gguf",
            "Q3-8B-UD-Q4_K_XL.gguf",
            "BF16/Q3-8B-00001-of-00002.gguf",
            "BF16/Q3-8B-00002-of-00002.gguf",
            "Q3-8B-IQ4_XS-00001-of-00001.gguf",
        )
    )
    assert {v.quant: len(v.files) for v in variants} == {
        "Q8_0": 1,
        "Q4_K_M": 1,
        "UD-Q4_K_XL": 1,
        "BF16": 2,
        "IQ4_XS": 1,
    }
    assert variant_of_quant(variants, "q4_k_m").files[0].name == "Q3-8B.Q4_K_M.gguf"


def test_what_is_no_model_of_its_own_is_left_out() -> None:
    named = (
        "mmproj-F16.gguf",
        "m-mmproj-BF16.gguf",
        "m.imatrix.gguf",
        "imatrix_unsloth.gguf",
        "mtp-m-Q8_0.gguf",
        "m-eagle3-Q8_0.gguf",
        "ggml-vocab-m.gguf",
        "README.md",
        "preset.ini",
        "Modelfile",
        "run.py",
    )
    assert variants_of(files(*named)) == ()


def test_a_set_with_a_part_missing_is_no_model() -> None:
    assert variants_of(files("m-Q4_0-00001-of-00003.gguf", "m-Q4_0-00003-of-00003.gguf")) == ()
    assert variants_of(files("a/m-Q4_0-00001-of-00002.gguf", "b/m-Q4_0-00002-of-00002.gguf")) == ()


def test_the_better_projector_comes_first() -> None:
    found = projectors_of(files("mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf", "m-Q4_0.gguf"))
    assert [file.name for file in found] == ["mmproj-F16.gguf", "mmproj-BF16.gguf", "mmproj-F32.gguf"]


def test_a_repository_of_several_models_asks_which() -> None:
    variants = variants_of(files("a-Q4_0.gguf", "b-Q4_0.gguf", "b-Q8_0.gguf"))
    with pytest.raises(ModelAmbiguous) as caught:
        variant_of_quant(variants, "Q4_0")
    assert "a-Q4_0.gguf" in (caught.value.hint or "")
    with pytest.raises(ModelAmbiguous):
        distinct(variants)
    assert variant_with_file(variants, "b-Q8_0.gguf").quant == "Q8_0"


def test_what_is_not_there_is_answered_with_what_is() -> None:
    variants = variants_of(files("m-Q4_0.gguf", "m-Q8_0.gguf"))
    with pytest.raises(NotFound) as caught:
        variant_of_quant(variants, "Q5_K_M")
    assert "Q8_0" in (caught.value.hint or "")
    with pytest.raises(NotFound) as caught:
        variant_with_file(variants, "x.gguf")
    assert "m-Q8_0.gguf" in (caught.value.hint or "")
