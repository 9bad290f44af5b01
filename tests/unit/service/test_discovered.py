from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.errors import ModelNotFound
from localllm.hub.discover import Places
from localllm.hub.store import Store
from localllm.service.catalogue import Catalogue
from localllm.service.discovered import Discovered
from tests.support.other_stores import ollama_model, put
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny-F16.gguf", "llama", weights="f16")


@pytest.fixture
def content(tiny: Path) -> bytes:
    return tiny.read_bytes()


async def test_one_library_of_all_stores(tmp_path: Path, tiny: Path, content: bytes) -> None:
    store = Store(tmp_path / "store")
    store.import_file(tiny, name="mine")
    ollama_model(tmp_path / "o", "library/qwen3/latest", content)
    put(content, tmp_path / "f" / "other-F16.gguf")
    changes: list[int] = []
    places = Places(ollama=(tmp_path / "o",), folders=(tmp_path / "f",))
    discovered = Discovered(places, tmp_path / "notes.json", store, lambda: changes.append(1))
    catalogue = Catalogue(store, lambda: discovered.models)
    assert [model.name for model in catalogue.list()] == ["mine:F16"]
    await discovered.look()
    catalogue.forget()
    assert [(model.name, model.owner) for model in catalogue.list()] == [
        ("mine:F16", "localllm"),
        ("other:F16", "folder"),
        ("qwen3:latest", "ollama"),
    ]
    for name, meant in (("QWEN3", "qwen3:latest"), ("other", "other:F16"), ("mine", "mine:F16")):
        assert catalogue.get(name).name == meant
    with pytest.raises(ModelNotFound) as caught:
        catalogue.get("othr")
    assert caught.value.near == ("other:F16",)
    await discovered.look()
    assert changes == [1], "only what is different is said"


async def test_what_was_imported_in_place_is_listed_once(tmp_path: Path, content: bytes) -> None:
    file = put(content, tmp_path / "f" / "here-F16.gguf")
    store = Store(tmp_path / "store")
    store.import_file(file, mode="reference")
    discovered = Discovered(Places(folders=(tmp_path / "f",)), tmp_path / "notes.json", store)
    await discovered.look()
    assert discovered.models == ()


async def test_a_model_answers_to_what_was_typed_to_pull_it(tmp_path: Path, content: bytes) -> None:
    file = put(content, tmp_path / "f" / "here-F16.gguf")
    store = Store(tmp_path / "store")
    store.import_file(file, name="tiny-1b")
    catalogue = Catalogue(store, alias={"tiny:1b": "tiny-1b", "gone:1b": "gone-1b"}.get)
    assert catalogue.get("tiny:1b").name == "tiny-1b:F16"
    with pytest.raises(ModelNotFound, match="gone:1b"):
        catalogue.get("gone:1b")
