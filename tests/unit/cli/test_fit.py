from __future__ import annotations

import json
from pathlib import Path

import pytest

from localllm.cli.main import main
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(write_tiny_gguf(tmp_path / "tiny.gguf", "llama"))


def test_the_table_of_a_file_marks_what_is_here_and_what_is_advised(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", file, "--context", "1k", "--simulate", "RTX 4090"]) == 0
    out = capsys.readouterr().out
    assert "GeForce RTX 4090, 1k of context, KV f16" in out
    assert sum(line.startswith("★") for line in out.splitlines()) == 1
    assert sum("●" in line and "F32" in line for line in out.splitlines()) == 1


def test_json_has_the_figures_in_bytes(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", file, "--kv-type", "q8_0", "--parallel", "2", "--json"]) == 0
    table = json.loads(capsys.readouterr().out)["data"]
    assert (table["kv_type_k"], table["parallel"]) == ("q8_0", 2)
    assert all(row["total_bytes"] >= row["weights_bytes"] for row in table["rows"])


def test_what_is_no_model_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "page.gguf"
    path.write_text("<html></html>")
    assert main(["fit", str(path)]) == 8
    assert "HTML" in capsys.readouterr().err
