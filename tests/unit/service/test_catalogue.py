from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.errors import ModelNotFound
from localllm.hub.store import Store
from localllm.service.catalogue import Catalogue
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def test_changes_by_others_are_seen_and_nothing_is_read_twice(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = write_tiny_gguf(tmp_path / "m.gguf", "llama")
    catalogue = Catalogue(store)
    assert catalogue.list() == ()
    with pytest.raises(ModelNotFound):
        catalogue.get("m")

    stored = store.import_file(model, name="m", mode="reference")
    assert catalogue.get("m") == stored
    assert [m.name for m in catalogue.list()] == [stored.name]
    (summary,) = catalogue.summaries(frozenset({stored.name}))
    assert summary.loaded

    monkeypatch.setattr(Store, "get", None)
    monkeypatch.setattr(Store, "scan", None)
    assert catalogue.get("m") == stored and catalogue.list()


def test_a_removed_model_is_gone(store: Store, tmp_path: Path) -> None:
    catalogue = Catalogue(store)
    store.import_file(write_tiny_gguf(tmp_path / "m.gguf", "llama"), name="m", mode="reference")
    catalogue.get("m")
    store.remove("m")
    catalogue.forget()
    with pytest.raises(ModelNotFound):
        catalogue.get("m")
