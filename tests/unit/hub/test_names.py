from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.errors import BadName
from localllm.hub.names import (
    ModelName,
    Shard,
    base_of_file,
    near_names,
    parse_name,
    parse_shard,
    quant_of_file,
)

_FIRST = string.ascii_letters + string.digits
_PART = st.builds(
    lambda first, rest: (first + rest).replace("..", "."),
    st.sampled_from(_FIRST),
    st.text(_FIRST + "._-", max_size=12),
)


@given(st.lists(_PART, min_size=1, max_size=3), st.none() | _PART)
def test_names_round_trip(parts: list[str], tag: str | None) -> None:
    text = "/".join(parts) + (f":{tag}" if tag else "")
    if ".." in text:
        return
    assert str(parse_name(text)) == text
    assert parse_name(text.upper()).key == parse_name(text.lower()).key


@pytest.mark.parametrize(
    "text",
    [
        "",
        " a",
        "a ",
        "../a",
        "a/../b",
        "/a",
        "a/",
        "a::b",
        "a:b:c",
        ":q",
        "a:",
        "a\n",
        "a\0b",
        "-a",
        "a b",
        "é",
        "a" * 161,
    ],
)
def test_what_is_no_name_is_refused_and_not_mended(text: str) -> None:
    with pytest.raises(BadName) as caught:
        parse_name(text)
    assert caught.value.hint is not None
    assert caught.value.param == "model"


@pytest.mark.parametrize(
    ("file", "base", "quant"),
    [
        ("gemma-3-270m-q4_k_m.gguf", "gemma-3-270m", "Q4_K_M"),
        ("Qwen3-8B-UD-Q4_K_XL-00001-of-00002.gguf", "qwen3-8b", "UD-Q4_K_XL"),
        ("Meta-Llama-3.1-8B-Instruct.Q8_0.gguf", "meta-llama-3.1-8b-instruct", "Q8_0"),
        ("model-IQ4_XS.GGUF", "model", "IQ4_XS"),
        ("model-IQ3_XXS.gguf", "model", "IQ3_XXS"),
        ("tiny-F16.gguf", "tiny", "F16"),
        ("tiny-BF16.gguf", "tiny", "BF16"),
        ("gpt-oss-20b-MXFP4.gguf", "gpt-oss-20b", "MXFP4"),
        ("llama-7b.gguf", "llama-7b", None),
        ("My Model (v2).gguf", "my-model-v2", None),
        ("...gguf", "model", None),
        ("Q4_K_M.gguf", "q4_k_m", "Q4_K_M"),
    ],
)
def test_names_of_files(file: str, base: str, quant: str | None) -> None:
    assert (base_of_file(file), quant_of_file(file)) == (base, quant)
    parse_name(base_of_file(file))


@given(st.text(max_size=60))
def test_any_file_name_gives_a_valid_model_name(file: str) -> None:
    parse_name(base_of_file(file)[:160])


def test_shards() -> None:
    shard = parse_shard("big-Q4_K_M-00002-of-00003.gguf")
    assert shard == Shard("big-Q4_K_M", 2, 3)
    assert shard.file_name(3) == "big-Q4_K_M-00003-of-00003.gguf"
    for other in ("big.gguf", "big-00004-of-00003.gguf", "big-00000-of-00003.gguf", "big-2-of-3.gguf"):
        assert parse_shard(other) is None


HERE = ("gemma3-270m:Q4_K_M", "qwen3-8b:Q4_K_M", "qwen3-8b:Q8_0", "llama-3.1-8b:Q4_K_M")


@pytest.mark.parametrize(
    ("asked", "first"),
    [
        ("gemma", "gemma3-270m:Q4_K_M"),
        ("gema", "gemma3-270m:Q4_K_M"),
        ("lama", "llama-3.1-8b:Q4_K_M"),
        ("gema3-270m", "gemma3-270m:Q4_K_M"),
        ("qwen3-8b:Q5_K_M", "qwen3-8b:Q4_K_M"),
        ("QWEN3", "qwen3-8b:Q4_K_M"),
        ("lama-3.1-8b", "llama-3.1-8b:Q4_K_M"),
        ("gemma3-270m-it:Q4_K_M", "gemma3-270m:Q4_K_M"),
    ],
)
def test_near_names_put_the_likeliest_first(asked: str, first: str) -> None:
    assert near_names(asked, HERE)[0] == first


def test_nothing_near_is_nothing() -> None:
    assert near_names("zzz", HERE) == ()
    assert near_names("qwen", ()) == ()


def test_a_name_without_a_tag() -> None:
    assert parse_name("a/b") == ModelName("a/b", None)
