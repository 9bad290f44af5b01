from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.errors import ChecksumMismatch, ModelAmbiguous, ModelNotFound, StoreCorrupt
from localllm.hardware.assets import asset_path
from localllm.hub.curated import (
    Curated,
    decode_catalogue,
    fetch_catalogue,
    local_name,
    newest_catalogue,
    read_catalogue,
    source_of,
)
from localllm.hub.names import parse_name
from localllm.hub.references import CatalogueReference, HuggingFaceReference, parse_reference
from tests.support.loopback_hub import LoopbackHub


@pytest.fixture(scope="module")
def curated() -> Curated:
    return Curated(read_catalogue(asset_path("catalogue.json")))


def find(curated: Curated, text: str) -> tuple[str, str | None]:
    reference = parse_reference(text)
    assert isinstance(reference, CatalogueReference)
    model, quant = curated.find(reference)
    return model.name, quant


def test_the_shipped_catalogue_is_sound(curated: Curated) -> None:
    assert len(curated.models) >= 100
    names = [name.lower() for model in curated.models for name in (model.name, *model.aliases)]
    assert len(names) == len(set(names)), "no two models share a name"
    makers = [model.makers_repository for model in curated.models]
    assert len(makers) == len(set(makers)), "one entry per model"
    for model in curated.models:
        parse_name(model.name)
        assert model.purposes
        assert model.licence
        assert 0 < (model.active or model.parameters) <= model.parameters
        for repository in model.repositories:
            assert isinstance(parse_reference(repository), HuggingFaceReference)
        for alias in model.aliases:
            assert find(curated, alias) == (model.name, None)
    purposes = {purpose for model in curated.models for purpose in model.purposes}
    assert {"chat", "coding", "reasoning", "vision", "embedding", "small", "tools"} <= purposes


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("qwen3:8b", ("qwen3-8b", None)),
        ("QWEN3-8B", ("qwen3-8b", None)),
        ("qwen3-8b:Q5_K_M", ("qwen3-8b", "Q5_K_M")),
        ("qwen3:8b:q4_k_m", ("qwen3-8b", "q4_k_m")),
        ("gpt-oss:20b", ("gpt-oss-20b", None)),
    ],
)
def test_names_are_found(curated: Curated, text: str, found: tuple[str, str | None]) -> None:
    assert find(curated, text) == found


def test_a_family_asks_for_the_size(curated: Curated) -> None:
    with pytest.raises(ModelAmbiguous) as caught:
        find(curated, "qwen3")
    assert "qwen3-8b" in (caught.value.hint or "")


def test_what_is_not_in_it_is_answered_with_what_is_near(curated: Curated) -> None:
    with pytest.raises(ModelNotFound) as caught:
        find(curated, "qwen3:9b")
    assert "qwen3" in " ".join(caught.value.near)
    assert "ollama:qwen3:9b" in (caught.value.hint or "")


def test_where_to_get_it(curated: Curated) -> None:
    model, _ = curated.find(CatalogueReference("qwen3", ("8b",)))
    assert source_of(model).repository == model.repositories[0]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"format":2,"revision":"x","models":[]}', b"\xff"])
def test_a_catalogue_that_is_none_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(StoreCorrupt):
        decode_catalogue(content)
    with pytest.raises(StoreCorrupt):
        read_catalogue(tmp_path / "missing.json")


@pytest.mark.parametrize(
    ("reference", "name"),
    [
        ("qwen3:8b", "qwen3-8b"),
        ("qwen3:8b:Q5_K_M", "qwen3-8b:Q5_K_M"),
        ("hf.co/o/R-GGUF:Q4_0", "o/R-GGUF:Q4_0"),
        ("o/R-GGUF", "o/R-GGUF"),
        ("ollama:tiny", "tiny:latest"),
        ("ollama:me/tiny:1b", "me/tiny:1b"),
        ("nothing:8b", None),
        ("https://example.org/m.gguf", None),
        ("../x", None),
        ("", None),
    ],
)
def test_what_was_pulled_can_be_run_by_what_was_typed(
    curated: Curated, reference: str, name: str | None
) -> None:
    assert local_name(curated, reference) == name


CONTENT = b'{"format": 1, "revision": "2999-01-01", "models": []}'


async def test_a_later_catalogue_is_taken_when_its_digest_is_right(tmp_path: Path) -> None:
    target = tmp_path / "data" / "catalogue.json"
    with LoopbackHub({"catalogue.json": CONTENT, "other": b"[]"}).serving() as hub:
        url, digest = f"{hub.url}/files/catalogue.json", hub.digests["catalogue.json"]
        with pytest.raises(ChecksumMismatch):
            await fetch_catalogue(url, "0" * 64, target)
        with pytest.raises(StoreCorrupt):
            await fetch_catalogue(f"{hub.url}/files/other", hub.digests["other"], target)
        assert not target.exists()
        await fetch_catalogue(url, digest.upper(), target)
    shipped = asset_path("catalogue.json")
    assert newest_catalogue(shipped, target).revision == "2999-01-01"
    target.write_bytes(b"damaged")
    assert newest_catalogue(shipped, target).models
    target.write_bytes(CONTENT.replace(b"2999", b"1999"))
    assert newest_catalogue(shipped, target).models, "an older one does not win"
