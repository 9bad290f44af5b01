"""The table of well-known models: every line makes sense, and names are found as people write them."""

from __future__ import annotations

import pytest
from msgspec import ValidationError

from localllm.core.facts import facts_from_header
from localllm.core.known_models import KnownModel, find_known_model, parse_known_models
from tests.support.known_facts import header_of, known_models


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Meta-Llama-3.1-8B-Instruct", "Llama-3.1-8B"),
        ("bartowski/Llama-3.2-3B-Instruct-GGUF", "Llama-3.2-3B"),
        ("llama3.2:3b", "Llama-3.2-3B"),
        ("qwen2.5-coder:32b", "Qwen2.5-32B"),
        ("Qwen2.5-3B-Instruct-Q4_K_M", "Qwen2.5-3B"),
        ("unsloth/gemma-3-27b-it-GGUF", "gemma-3-27b"),
        ("Phi-4-mini-instruct", "Phi-4-mini"),
        ("Mistral-7B-Instruct-v0.3", "Mistral-7B-v0.3"),
        ("openai/gpt-oss-120b", "gpt-oss-120b"),
    ],
)
def test_names_as_people_write_them(name: str, expected: str) -> None:
    found = find_known_model(name, known_models())
    assert found is not None
    assert expected in found.names


def test_an_unknown_model_is_unknown() -> None:
    assert find_known_model("my-own-finetune", known_models()) is None


@pytest.mark.parametrize("known", known_models(), ids=lambda known: known.names[0])
def test_every_model_makes_a_header_that_reads_back(known: KnownModel) -> None:
    facts = facts_from_header(header_of(known.names[0], "Q8_0"))
    assert facts.n_layer == known.figures.n_layer
    assert facts.n_vocab == known.figures.n_vocab
    assert facts.architecture == known.figures.architecture
    assert facts.parameters > 100_000_000
    assert facts.tied_embeddings == known.figures.tied_embeddings


def test_a_line_that_is_no_model_is_refused() -> None:
    with pytest.raises(ValidationError):
        parse_known_models('{"names": ["x"], "architecture": "llama"}')


def test_no_name_is_listed_twice() -> None:
    names = [name.lower() for known in known_models() for name in known.names]
    assert len(names) == len(set(names))
