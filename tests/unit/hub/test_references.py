from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.errors import BadName
from localllm.hub.references import (
    CatalogueReference,
    HuggingFaceReference,
    OllamaReference,
    PathReference,
    Reference,
    UrlReference,
    checked_file_name,
    parse_reference,
)

_EDGE = string.ascii_letters + string.digits
_WORD = st.builds(
    lambda first, middle, last: (first + middle + last).replace("..", "."),
    st.sampled_from(_EDGE),
    st.text(_EDGE + "._-", max_size=12),
    st.sampled_from(_EDGE),
).filter(lambda word: not word.lower().endswith(".gguf"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("qwen3:8b", CatalogueReference("qwen3", ("8b",))),
        ("qwen3-8b:Q5_K_M", CatalogueReference("qwen3-8b", ("Q5_K_M",))),
        ("qwen3:8b:Q5_K_M", CatalogueReference("qwen3", ("8b", "Q5_K_M"))),
        ("gemma3-270m", CatalogueReference("gemma3-270m")),
        ("bartowski/Q3-GGUF", HuggingFaceReference(org="bartowski", repo="Q3-GGUF")),
        ("bartowski/Q3-GGUF:Q4_K_M", HuggingFaceReference(org="bartowski", repo="Q3-GGUF", choice="Q4_K_M")),
        (
            "hf.co/unsloth/Q3-GGUF:UD-Q4_K_XL",
            HuggingFaceReference(org="unsloth", repo="Q3-GGUF", choice="UD-Q4_K_XL"),
        ),
        (
            "hf.co/o/r@refs/pr/4:BF16/m-00001-of-00002.gguf",
            HuggingFaceReference(
                org="o", repo="r", revision="refs/pr/4", choice="BF16/m-00001-of-00002.gguf"
            ),
        ),
        ("https://huggingface.co/o/r", HuggingFaceReference(org="o", repo="r")),
        ("https://huggingface.co/o/r/tree/main", HuggingFaceReference(org="o", repo="r")),
        (
            "https://huggingface.co/o/r/blob/main/m-Q4_0.gguf",
            HuggingFaceReference(org="o", repo="r", choice="m-Q4_0.gguf"),
        ),
        ("ollama:llama3.2", OllamaReference(name="llama3.2")),
        ("ollama:llama3.2:1b", OllamaReference(name="llama3.2", tag="1b")),
        ("ollama:someone/thing:latest", OllamaReference(namespace="someone", name="thing")),
        ("https://example.org/a/m.gguf?x=1", UrlReference("https://example.org/a/m.gguf?x=1")),
        ("/models/m.gguf", PathReference("/models/m.gguf")),
        ("./m", PathReference("./m")),
        ("~/m.gguf", PathReference("~/m.gguf")),
        ("m.gguf", PathReference("m.gguf")),
        ("folder/m.gguf", PathReference("folder/m.gguf")),
    ],
)
def test_every_form_is_read(text: str, expected: Reference) -> None:
    assert parse_reference(text) == expected


@given(
    st.one_of(
        st.builds(CatalogueReference, _WORD, st.lists(_WORD, max_size=2).map(tuple)),
        st.builds(
            HuggingFaceReference,
            org=_WORD,
            repo=_WORD,
            revision=st.none() | _WORD,
            choice=st.none() | _WORD | _WORD.map(lambda word: f"{word}.gguf"),
        ),
        st.builds(OllamaReference, namespace=_WORD, name=_WORD, tag=_WORD),
    )
)
def test_what_is_written_is_read_back(reference: Reference) -> None:
    text = str(reference)
    if isinstance(reference, CatalogueReference) and reference.name.lower() == "ollama":
        return  # that word is taken: it begins a reference to Ollama's registry
    assert parse_reference(text) == reference


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        reference = parse_reference(text)
    except BadName as refused:
        assert refused.hint
    else:
        assert isinstance(reference, UrlReference | PathReference) or ".." not in str(reference)


@pytest.mark.parametrize(
    "text",
    [
        "",
        " qwen3",
        "qwen3 ",
        "qwen3:",
        "a:b:c:d",
        "hf.co/",
        "hf.co/only",
        "hf.co/o/../r",
        "o/r:../../etc/passwd.gguf",
        "o/r:Q4 K M",
        "a/b/c",
        "ollama:",
        "ollama:../x",
        "ollama:a/b/c",
        "https://",
        "https:///m.gguf",
        "https://user:secret@example.org/m.gguf",
        "https://example.org/readme.html",
        "https://example.org/..%2f..%2fm.gguf",
        "https://[::1/m.gguf",
        "ftp://example.org/m.gguf",
        "file:///etc/passwd",
        "qwen3\n",
        "qwen\u202e3",
        "x" * 1_001,
    ],
)
def test_what_follows_no_rule_is_refused(text: str) -> None:
    with pytest.raises(BadName):
        parse_reference(text)


TWELVE_BAD_NAMES = [
    "",
    "../m.gguf",
    "a/../../m.gguf",
    "/etc/m.gguf",
    "a\\..\\m.gguf",
    "C:m.gguf",
    "m\0.gguf",
    "m\n.gguf",
    ".ssh/m.gguf",
    "-rf.gguf",
    "con.gguf",
    "m\u202efugg.gguf",
    "m.gguf ",
    "a//m.gguf",
    "é" * 150 + ".gguf",
    "/".join("abcdefghij") + ".gguf",
]


@pytest.mark.parametrize("name", TWELVE_BAD_NAMES)
def test_odd_file_names_are_refused(name: str) -> None:
    with pytest.raises(BadName):
        checked_file_name(name)


@pytest.mark.parametrize("name", ["m.gguf", "Q4_K_M/m-00001-of-00002.gguf", "Müller 7B.gguf", "a+b(c).gguf"])
def test_ordinary_file_names_are_kept(name: str) -> None:
    assert checked_file_name(name) == name
