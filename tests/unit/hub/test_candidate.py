from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.errors import BadName, GGUFError, NotFound
from localllm.hub.candidate import examine
from tests.support.tiny_gguf import write_tiny_gguf


def test_a_file_is_called_what_its_name_says_and_quantised_as_its_header_says(tmp_path: Path) -> None:
    found = examine(write_tiny_gguf(tmp_path / "Tiny_Llama-Q4_K_M.gguf", "llama", weights="f16"))
    assert found.quant == "F16"
    assert str(found.name(None)) == "tiny_llama:F16"
    assert str(found.name("mine")) == "mine:F16"
    assert str(found.name("mine:best")) == "mine:best"
    with pytest.raises(BadName):
        found.name("../mine")


def test_nothing_is_touched(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    before = path.stat().st_mtime_ns
    found = examine(path)
    assert (found.parts, found.projector) == ((path,), None)
    assert path.stat().st_mtime_ns == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_projector_can_be_named(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "tiny.gguf", "llama")
    assert examine(path, projector=tmp_path / "elsewhere.gguf").projector == tmp_path / "elsewhere.gguf"


def test_what_is_not_there_or_no_model(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        examine(tmp_path / "absent.gguf")
    (tmp_path / "part-00001-of-00002.gguf").write_bytes(b"GGUF")
    with pytest.raises(GGUFError, match="part-00002-of-00002"):
        examine(tmp_path / "part-00001-of-00002.gguf")
