from __future__ import annotations

import os
from pathlib import Path

import pytest

from localllm.hub import discover as module
from localllm.hub.discover import Found, HeaderNotes, Places, discover, duplicates, models_from, places_from
from tests.support.other_stores import hugging_face_file, ollama_model, put
from tests.support.split_gguf import split
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "tiny-F16.gguf", "llama", weights="f16")


@pytest.fixture(scope="module")
def content(tiny: Path) -> bytes:
    return tiny.read_bytes()


def by_name(found: tuple[Found, ...]) -> dict[str, Found]:
    return {each.name: each for each in found}


def test_ollamas_models_are_found_by_their_manifests(tmp_path: Path, content: bytes) -> None:
    root = tmp_path / "models"
    blob = ollama_model(root, "library/qwen3/8b", content, projector=b"GGUF projector")
    ollama_model(root, "someone/thing/latest", content + b"2")
    found = by_name(discover(Places(ollama=(root,))))
    assert set(found) == {"qwen3:8b", "someone/thing:latest"}
    model = found["qwen3:8b"]
    assert (model.owner, model.files, model.size_bytes) == ("ollama", (blob,), len(content))
    assert model.sha256 == blob.name.removeprefix("sha256-")
    assert model.projector is not None


@pytest.mark.parametrize(
    "manifest",
    [
        b"",
        b"{",
        b'{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:../../x","size":1}]}',
        b'{"layers":[{"mediaType":"application/vnd.ollama.image.model","digest":"sha256:'
        + b"0" * 64
        + b'"}]}',
        b'{"layers":[]}',
    ],
)
def test_manifests_that_lead_nowhere_are_left_out(tmp_path: Path, manifest: bytes) -> None:
    put(manifest, tmp_path / "manifests" / "registry.ollama.ai" / "library" / "odd" / "latest")
    assert discover(Places(ollama=(tmp_path,))) == ()


def test_hugging_faces_cache_is_links_to_blobs(tmp_path: Path, tiny: Path, content: bytes) -> None:
    file = hugging_face_file(tmp_path, "maker/Tiny-GGUF", "tiny-F16.gguf", content)
    hugging_face_file(tmp_path, "maker/Tiny-GGUF", "mmproj-F16.gguf", b"GGUF p")
    for part in split(tiny, tmp_path / "parts"):
        hugging_face_file(tmp_path, "maker/Big-GGUF", f"BF16/{part.name}", part.read_bytes())
    dangling = tmp_path / "models--maker--Gone" / "snapshots" / "x" / "gone-Q4_0.gguf"
    dangling.parent.mkdir(parents=True)
    dangling.symlink_to("../../blobs/nowhere")
    found = by_name(discover(Places(hugging_face=(tmp_path,))))
    assert set(found) == {"maker/Tiny-GGUF:F16", "maker/Big-GGUF:F32"}
    model = found["maker/Tiny-GGUF:F16"]
    assert (model.files, model.sha256, model.owner) == ((file,), file.resolve().name, "hugging_face")
    assert model.projector is not None
    assert len(found["maker/Big-GGUF:F32"].files) == 2


def test_llama_cpp_lm_studio_and_plain_folders(tmp_path: Path, content: bytes) -> None:
    put(content, tmp_path / "llama" / "maker_Tiny-GGUF_tiny-F16.gguf")
    put(b"{}", tmp_path / "llama" / "maker_Tiny-GGUF_tiny-F16.gguf.json")
    put(content, tmp_path / "studio" / "maker" / "Tiny-GGUF" / "tiny-F16.gguf")
    put(content, tmp_path / "mine" / "deep" / "er" / "own-Q4_K_M.gguf")
    os.mkfifo(tmp_path / "mine" / "pipe-Q4_0.gguf")
    (tmp_path / "mine" / "loop").symlink_to(tmp_path / "mine")
    places = Places(
        llama_cpp=(tmp_path / "llama",), lm_studio=(tmp_path / "studio",), folders=(tmp_path / "mine",)
    )
    found = discover(places)
    assert [(each.name, each.owner) for each in found] == [
        ("maker/Tiny-GGUF:F16", "lm_studio"),
        ("maker_tiny-gguf_tiny:F16", "llama.cpp"),
        ("own:Q4_K_M", "folder"),
    ]


def test_one_file_with_two_names_is_one_model(tmp_path: Path, content: bytes) -> None:
    first = put(content, tmp_path / "a-F16.gguf")
    os.link(first, tmp_path / "b-F16.gguf")
    assert [each.name for each in discover(Places(folders=(tmp_path,)))] == ["a:F16"]


def test_nothing_is_written_and_nothing_is_opened_for_writing(tmp_path: Path, content: bytes) -> None:
    root = tmp_path / "models"
    ollama_model(root, "library/tiny/latest", content)
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*")}
    root.chmod(0o500)
    models_from(discover(Places(ollama=(root,))), HeaderNotes(), ())
    root.chmod(0o700)
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*")} == before


def test_the_library_knows_names_owners_and_duplicates(tmp_path: Path, content: bytes) -> None:
    ollama_model(tmp_path / "o", "library/tiny/latest", content)
    hugging_face_file(tmp_path / "h", "maker/Tiny-GGUF", "tiny-F16.gguf", content)
    put(b"GGUF but no more", tmp_path / "f" / "broken-Q4_0.gguf")
    places = Places(ollama=(tmp_path / "o",), hugging_face=(tmp_path / "h",), folders=(tmp_path / "f",))
    models = {model.name: model for model in models_from(discover(places), HeaderNotes(), ["tiny:latest"])}
    assert set(models) == {"ollama/tiny:latest", "maker/Tiny-GGUF:F16", "broken:Q4_0"}
    model = models["ollama/tiny:latest"]
    assert (model.owner, model.architecture, model.quant) == ("ollama", "llama", "F16")
    assert models["broken:Q4_0"].problem is not None
    ((one, other),) = duplicates(models.values())
    assert {one.owner, other.owner} == {"ollama", "hugging_face"}


def test_headers_are_read_once_and_within_the_budget(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(content, tmp_path / "m" / "a-F16.gguf")
    found = discover(Places(folders=(tmp_path / "m",)))
    (model,) = models_from(found, HeaderNotes(tmp_path / "notes.json"), (), budget_s=0)
    assert (model.architecture, model.quant) == (None, "F16"), "the name is enough to list it"
    (model,) = models_from(found, HeaderNotes(tmp_path / "notes.json"), ())
    assert model.architecture == "llama"

    def read(path: Path) -> None:
        raise AssertionError("it was read before")

    monkeypatch.setattr(module, "read_header", read)
    (model,) = models_from(found, HeaderNotes(tmp_path / "notes.json"), ())
    assert model.architecture == "llama"
    monkeypatch.undo()
    os.utime(file, ns=(1, 1))
    (changed,) = models_from(
        discover(Places(folders=(tmp_path / "m",))), HeaderNotes(tmp_path / "notes.json"), ()
    )
    assert changed.architecture == "llama"


def test_the_tools_own_variables_count(tmp_path: Path) -> None:
    places = places_from(
        {"HOME": "/h", "OLLAMA_MODELS": "/o", "HF_HOME": "/hf", "LLAMA_CACHE": "/l"}, folders=["/m"]
    )
    assert places.ollama[:2] == (Path("/o"), Path("/h/.ollama/models"))
    assert places.hugging_face == (Path("/hf/hub"),)
    assert places.llama_cpp == (Path("/l"),)
    assert Path("/h/.lmstudio/models") in places.lm_studio
    assert places.folders == (Path("/m"),)
    assert places_from({"HOME": "/h"}).hugging_face == (Path("/h/.cache/huggingface/hub"),)
