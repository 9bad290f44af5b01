from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

import pytest

from localllm.core.errors import ChecksumMismatch, Conflict, GGUFError
from localllm.hub.bundle import export_files, read_bundle, write_bundle
from localllm.hub.store import Store
from tests.support.split_gguf import split
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "tiny-F16.gguf", "llama", weights="f16")


@pytest.fixture
def out(tmp_path: Path) -> Path:
    folder = tmp_path / "out"
    folder.mkdir()
    return folder


def test_a_model_comes_out_as_it_went_in(store: Store, file: Path, tmp_path: Path, out: Path) -> None:
    (tmp_path / "mmproj-F16.gguf").write_bytes(b"GGUF projector")
    model = store.import_file(file, name="mine", chat_template="{{ x }}", stop=["<end>"], licence="MIT")
    seen: list[tuple[int, int]] = []
    write_bundle(store, "mine", tmp_path / "mine.tar", lambda done, total: seen.append((done, total)))
    assert seen[-1][0] == seen[-1][1] == model.size_bytes + 14
    note = read_bundle(tmp_path / "mine.tar", out)
    assert (note.name, note.chat_template, note.stop, note.licence) == (
        "mine:F16",
        "{{ x }}",
        ("<end>",),
        "MIT",
    )
    assert (out / "model.gguf").read_bytes() == file.read_bytes()
    assert (out / "mmproj.gguf").read_bytes() == b"GGUF projector"
    again = Store(tmp_path / "other").import_file(out / "model.gguf", name=note.name)
    assert (again.sha256, again.mmproj_path is not None) == (model.sha256, True)


def test_a_split_model_keeps_its_parts(store: Store, file: Path, tmp_path: Path, out: Path) -> None:
    store.import_file(split(file, tmp_path / "parts")[0], name="big")
    write_bundle(store, "big", tmp_path / "big.tar")
    read_bundle(tmp_path / "big.tar", out)
    assert {path.name for path in out.iterdir()} == {"model-00001-of-00002.gguf", "model-00002-of-00002.gguf"}
    assert Store(tmp_path / "other").import_file(out / "model-00001-of-00002.gguf").problem is None


def test_exported_files_have_names_that_say_what_they_are(
    store: Store, file: Path, tmp_path: Path, out: Path
) -> None:
    store.import_file(split(file, tmp_path / "parts")[0], name="maker/big")
    (tmp_path / "mmproj-F16.gguf").write_bytes(b"GGUF projector")
    store.import_file(file, name="mine")
    assert [path.name for path in export_files(store, "mine", out)] == [
        "mine-F16.gguf",
        "mmproj-mine-F16.gguf",
    ]
    assert (out / "mine-F16.gguf").read_bytes() == file.read_bytes()
    parts = export_files(store, "maker/big", out)
    assert [part.name for part in parts] == ["big-F16-00001-of-00002.gguf", "big-F16-00002-of-00002.gguf"]
    assert Store(tmp_path / "other").import_file(parts[0]).problem is None
    with pytest.raises(Conflict, match="exists"):
        export_files(store, "mine", out)


def test_what_cannot_be_bundled(store: Store, file: Path, tmp_path: Path) -> None:
    store.import_file(file, name="there", mode="reference")
    with pytest.raises(Conflict, match="by reference"):
        write_bundle(store, "there", tmp_path / "x.tar")
    store.import_file(file, name="mine")
    (tmp_path / "x.tar").write_bytes(b"precious")
    with pytest.raises(Conflict, match="exists"):
        write_bundle(store, "mine", tmp_path / "x.tar")
    assert (tmp_path / "x.tar").read_bytes() == b"precious"


def test_a_damaged_bundle_leaves_nothing(store: Store, file: Path, tmp_path: Path, out: Path) -> None:
    store.import_file(file, name="mine")
    bundle = tmp_path / "mine.tar"
    write_bundle(store, "mine", bundle)
    content = bytearray(bundle.read_bytes())
    content[len(content) // 2] ^= 1
    bundle.write_bytes(content)
    with pytest.raises(ChecksumMismatch):
        read_bundle(bundle, out)
    bundle.write_bytes(content[: len(content) // 2])
    with pytest.raises((GGUFError, ChecksumMismatch)):
        read_bundle(bundle, out)
    assert list(out.iterdir()) == []


def tar_of(path: Path, *members: tuple[str, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def note(**changes: object) -> bytes:
    files = [{"name": "model.gguf", "size_bytes": 1, "sha256": "0" * 64}]
    return json.dumps({"format": 1, "name": "m:F16", "files": files, **changes}).encode()


@pytest.mark.parametrize(
    "members",
    [
        (),
        (("model.gguf", b"x"),),
        (("model.json", b"{"),),
        (("model.json", note(format=2)), ("model.gguf", b"x")),
        (("model.json", note(name="../x")), ("model.gguf", b"x")),
        (("model.json", note(files=[])),),
        (("model.json", note(files=[{"name": "../evil", "size_bytes": 1, "sha256": ""}])), ("../evil", b"x")),
        (("model.json", note()), ("../model.gguf", b"x")),
        (("model.json", note()), ("model.gguf", b"xx")),
        (("model.json", note()),),
    ],
)
def test_a_hostile_archive_is_refused(
    tmp_path: Path, out: Path, members: tuple[tuple[str, bytes], ...]
) -> None:
    with pytest.raises((GGUFError, ChecksumMismatch)):
        read_bundle(tar_of(tmp_path / "bad.tar", *members), out)
    assert list(out.iterdir()) == []
    assert not (tmp_path / "evil").exists()


def test_what_is_no_archive_is_refused(tmp_path: Path, out: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"not a tar" * 100)
    with pytest.raises(GGUFError, match="not a bundle"):
        read_bundle(tmp_path / "x.tar", out)
