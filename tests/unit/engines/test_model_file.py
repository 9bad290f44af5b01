from __future__ import annotations

import os
from pathlib import Path

import pytest

from localllm.core.errors import LoadFailed, ModelChanged
from localllm.engines.model_file import FileIdentity


def test_the_same_file_stays_itself_and_reading_it_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"weights")
    identity = FileIdentity.of(path)
    path.read_bytes()
    identity.require_unchanged()


def test_replaced_cut_touched_or_removed_is_changed(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"weights")
    identity = FileIdentity.of(path)
    os.utime(path, (1, 1))
    with pytest.raises(ModelChanged):
        identity.require_unchanged()
    path.unlink()
    with pytest.raises(ModelChanged, match="no longer there"):
        identity.require_unchanged()


def test_a_missing_file_cannot_be_loaded(tmp_path: Path) -> None:
    with pytest.raises(LoadFailed, match=r"none\.gguf"):
        FileIdentity.of(tmp_path / "none.gguf")
