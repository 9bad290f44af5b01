from __future__ import annotations

from pathlib import Path

import click
import pytest

from localllm.cli.arguments import ByteCount, TokenCount, complete_model
from localllm.cli.local_store import local_store
from localllm.settings.paths import Paths
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.mark.parametrize(
    ("text", "tokens"), [("8192", 8192), ("8k", 8192), ("128K", 131_072), (" 1k ", 1024)]
)
def test_token_counts(text: str, tokens: int) -> None:
    assert TokenCount().convert(text, None, None) == tokens


@pytest.mark.parametrize("text", ["", "k", "lots", "-1", "0", "1.5k", "8kk", "8 kB"])
def test_what_is_no_token_count(text: str) -> None:
    with pytest.raises(click.BadParameter, match="8192 or 8k"):
        TokenCount().convert(text, None, None)


def test_byte_counts() -> None:
    assert ByteCount().convert("8GiB", None, None) == 8 << 30
    with pytest.raises(click.BadParameter, match="8GiB or 512MiB"):
        ByteCount().convert("much", None, None)


def test_model_names_are_completed_from_the_disk(paths: Paths, tmp_path: Path) -> None:
    context, param = click.Context(click.Command("show")), click.Argument(["model"])
    assert complete_model(context, param, "") == []
    local_store().import_file(write_tiny_gguf(tmp_path / "Tiny-F32.gguf", "llama"))
    assert [item.value for item in complete_model(context, param, "TI")] == ["tiny:F32"]
    assert complete_model(context, param, "x") == []


def test_completion_never_fails_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALLLM_HOME", "relative")
    assert complete_model(click.Context(click.Command("show")), click.Argument(["model"]), "") == []
