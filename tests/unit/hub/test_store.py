from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from localllm.core.errors import (
    BadName,
    ChecksumMismatch,
    Conflict,
    GGUFError,
    ModelAmbiguous,
    ModelNotFound,
    NotFound,
    StoreCorrupt,
)
from localllm.core.generation import Sampling
from localllm.hub.store import Store
from tests.support.split_gguf import split
from tests.support.tiny_gguf import CHATML_TEMPLATE, write_tiny_gguf


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    folder = tmp_path / "downloads"
    folder.mkdir()
    return write_tiny_gguf(folder / "Tiny-Llama-F32.gguf", "llama", chat_template=CHATML_TEMPLATE)


def blobs(store: Store) -> set[str]:
    folder = store.root / "blobs"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


def damage(path: Path) -> None:
    path.chmod(0o600)
    with path.open("r+b") as blob:
        blob.seek(-1, os.SEEK_END)
        last = blob.read(1)
        blob.seek(-1, os.SEEK_END)
        blob.write(bytes([last[0] ^ 1]))


def test_a_store_that_is_not_there_is_empty(store: Store) -> None:
    assert store.list() == ()
    assert not store.root.exists()
    with pytest.raises(ModelNotFound):
        store.get("anything")


def test_import_list_get_remove(store: Store, file: Path) -> None:
    model = store.import_file(file)
    assert model.name == "tiny-llama:F32"
    assert (model.architecture, model.trained_context_length, model.owner) == ("llama", 2048, "localllm")
    assert "chat" in model.capabilities
    assert model.path.read_bytes() == file.read_bytes()
    assert model.sha256 is not None
    assert model.path.name == f"sha256-{model.sha256}"
    assert store.list() == (model,)
    assert store.get("tiny-llama:F32") == store.get("TINY-LLAMA") == model
    assert store.remove("tiny-llama") == file.stat().st_size
    assert store.list() == ()
    assert blobs(store) == set()
    assert file.exists()


def test_what_the_file_lacks_is_remembered(store: Store, file: Path) -> None:
    model = store.import_file(
        file,
        name="mine",
        chat_template="{{ messages }}",
        stop=["\nUser:"],
        sampling=Sampling(temperature=0.1),
        licence="MIT",
    )
    again = Store(store.root).get("mine")
    assert again == model
    assert again.name == "mine:F32"
    assert (again.chat_template, again.stop, again.licence) == ("{{ messages }}", ("\nUser:",), "MIT")
    assert again.sampling == Sampling(temperature=0.1)


def test_importing_the_same_again_changes_what_is_given_and_keeps_the_rest(store: Store, file: Path) -> None:
    store.import_file(file, sampling=Sampling(temperature=0.1), chat_template="{{ messages }}")
    before = store.get("tiny-llama").path.stat()
    model = store.import_file(file, stop=["x"])
    assert store.list() == (model,)
    assert (model.stop, model.chat_template) == (("x",), "{{ messages }}")
    assert model.sampling == Sampling(temperature=0.1)
    assert model.path.stat().st_ino == before.st_ino


def test_a_taken_name_is_refused_before_anything_is_copied(store: Store, file: Path, tmp_path: Path) -> None:
    store.import_file(file)
    there = blobs(store)
    other = write_tiny_gguf(tmp_path / "other.gguf", "llama", n_layer=2)
    with pytest.raises(Conflict) as caught:
        store.import_file(other, name="Tiny-llama:f32")
    assert "--name" in (caught.value.hint or "")
    assert blobs(store) == there


def test_another_file_of_the_same_size_does_not_take_the_name(
    store: Store, file: Path, tmp_path: Path
) -> None:
    model = store.import_file(file)
    other = tmp_path / file.name
    other.write_bytes(file.read_bytes())
    damage(other)
    with pytest.raises(Conflict, match="is not this file"):
        store.import_file(other)
    with pytest.raises(Conflict):
        store.import_file(file, mode="reference")
    assert store.list() == (model,)
    assert blobs(store) == {f"sha256-{model.sha256}"}


def test_two_names_share_a_blob_and_the_last_one_frees_it(store: Store, file: Path) -> None:
    store.import_file(file, name="a")
    store.import_file(file, name="b")
    assert len(blobs(store)) == 1
    assert store.remove("a") == 0
    assert store.get("b").path.exists()
    assert store.remove("b") == file.stat().st_size
    assert blobs(store) == set()


def test_a_removal_takes_along_what_a_kill_left_behind(store: Store, file: Path, tmp_path: Path) -> None:
    store.import_file(file)
    orphan = store.root / "blobs" / ("sha256-" + "0" * 64)
    orphan.write_bytes(b"x" * 1000)
    kept = store.import_file(write_tiny_gguf(tmp_path / "kept-F32.gguf", "llama", n_layer=2))
    assert store.remove("tiny-llama") == file.stat().st_size + 1000
    assert blobs(store) == {f"sha256-{kept.sha256}"}


def test_while_a_manifest_cannot_be_read_nothing_but_the_models_own_files_goes(
    store: Store, file: Path
) -> None:
    store.import_file(file)
    orphan = store.root / "blobs" / ("sha256-" + "0" * 64)
    orphan.write_bytes(b"perhaps the other one's")
    (store.root / "manifests" / "broken.json").write_text("{")
    store.remove("tiny-llama")
    assert blobs(store) == {orphan.name}


def test_a_reference_stays_where_it_is(store: Store, file: Path) -> None:
    model = store.import_file(file, mode="reference")
    assert model.path == file
    assert model.sha256 is None
    assert blobs(store) == set()
    assert store.verify(model.name) == model
    assert store.remove(model.name) == 0
    assert file.exists()


def test_a_reference_whose_file_changed_or_went_says_so(store: Store, file: Path) -> None:
    name = store.import_file(file, mode="reference").name
    os.utime(file, (1, 1))
    assert "has changed" in (store.get(name).problem or "")
    file.unlink()
    assert "cannot be found" in (store.get(name).problem or "")
    assert store.get(name).summary().problem
    with pytest.raises(StoreCorrupt):
        store.verify(name)
    store.remove(name)
    assert store.list() == ()


def test_a_link_needs_no_second_copy(store: Store, file: Path) -> None:
    model = store.import_file(file, mode="link")
    assert model.path.samefile(file)
    assert store.remove(model.name) == 0


def test_verify_notices_one_flipped_bit(store: Store, file: Path) -> None:
    model = store.import_file(file)
    steps: list[tuple[int, int]] = []
    assert store.verify(model.name, lambda done, total: steps.append((done, total))) == model
    assert steps[-1] == (file.stat().st_size, file.stat().st_size)
    damage(model.path)
    with pytest.raises(ChecksumMismatch) as caught:
        store.verify(model.name)
    assert model.name in (caught.value.hint or "")


def test_several_quantisations_need_to_be_told_apart(store: Store, file: Path) -> None:
    store.import_file(file, name="tiny:F32")
    store.import_file(file, name="tiny:Q4_K_M")
    with pytest.raises(ModelAmbiguous) as caught:
        store.get("tiny")
    assert caught.value.details["names"] == ["tiny:F32", "tiny:Q4_K_M"]
    assert store.get("tiny:q4_k_m").name == "tiny:Q4_K_M"


def test_an_unknown_name_comes_with_near_ones(store: Store, file: Path) -> None:
    store.import_file(file)
    with pytest.raises(ModelNotFound) as caught:
        store.get("tiny-lama")
    assert caught.value.near == ("tiny-llama:F32",)
    with pytest.raises(BadName):
        store.get("../tiny")


def test_a_broken_manifest_costs_only_its_model(store: Store, file: Path) -> None:
    kept = store.import_file(file, name="kept")
    store.import_file(file, name="broken")
    (store.root / "manifests" / "broken%3Af32.json").write_text("{")
    scan = store.scan()
    assert scan.models == (kept,)
    assert len(scan.problems) == 1
    with pytest.raises(StoreCorrupt):
        store.get("broken:F32")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "empty|short|not|bytes"),
        (b"<!DOCTYPE html><html>", "HTML"),
        (b"version https://git-lfs.github.com/spec/v1\n", "LFS"),
    ],
)
def test_what_is_no_model_is_refused(store: Store, tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    with pytest.raises(GGUFError, match=words):
        store.import_file(path)
    assert blobs(store) == set()
    assert store.list() == ()


def test_missing_files_folders_and_pipes_are_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        store.import_file(tmp_path / "absent.gguf")
    with pytest.raises(GGUFError):
        store.import_file(tmp_path)
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(GGUFError):
        store.import_file(tmp_path / "pipe.gguf")


def test_a_cancelled_import_leaves_nothing(store: Store, file: Path) -> None:
    def cancel(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        store.import_file(file, on_progress=cancel)
    assert store.list() == ()
    assert blobs(store) == set()


def test_a_split_model_comes_whole(store: Store, file: Path, tmp_path: Path) -> None:
    parts = split(file, tmp_path / "set")
    model = store.import_file(parts[0])
    assert model.name == "big:F32"
    assert model.path.name == "model-00001-of-00002.gguf"
    assert model.size_bytes == sum(part.stat().st_size for part in parts)
    assert model.path.with_name("model-00002-of-00002.gguf").read_bytes() == parts[1].read_bytes()
    assert store.facts(model.name).n_layer == 4
    damage(model.path.with_name("model-00002-of-00002.gguf"))
    with pytest.raises(ChecksumMismatch):
        store.verify(model.name)
    assert store.remove(model.name) == model.size_bytes
    assert blobs(store) == set()


def test_a_split_model_with_a_part_missing_names_it(store: Store, file: Path, tmp_path: Path) -> None:
    parts = split(file, tmp_path / "set")
    parts[1].unlink()
    with pytest.raises(GGUFError, match="big-F32-00002-of-00002"):
        store.import_file(parts[0])
    assert blobs(store) == set()


def test_a_projector_beside_a_single_model_comes_along(store: Store, file: Path) -> None:
    projector = file.with_name("mmproj-Tiny-Llama-f16.gguf")
    projector.write_bytes(b"GGUF projector")
    model = store.import_file(file)
    assert model.mmproj_path is not None
    assert model.mmproj_path.read_bytes() == projector.read_bytes()
    assert "vision" in model.capabilities
    store.remove(model.name)
    assert blobs(store) == set()


def test_a_projector_among_several_models_is_nobodys(store: Store, file: Path) -> None:
    file.with_name("mmproj-x.gguf").write_bytes(b"GGUF projector")
    file.with_name("another-Q4_0.gguf").write_bytes(b"GGUF")
    assert store.import_file(file).mmproj_path is None


def test_imports_and_removals_at_once_end_in_a_whole_model(store: Store, file: Path) -> None:
    """A removal that frees the blob an import has just found must not leave that import without it."""

    def churn(name: str) -> None:
        for _ in range(10):
            store.import_file(file, name=name)
            store.remove(name)

    threads = [threading.Thread(target=churn, args=(f"m{number}",)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    model = store.import_file(file, name="last")
    assert store.verify("last") == model
    assert len(blobs(store)) == 1
