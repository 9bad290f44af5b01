from __future__ import annotations

import os
from pathlib import Path

import pytest

from localllm.core.errors import Forbidden
from localllm.settings.private import read_private, secure_folder, write_private

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and links are POSIX's")


def test_what_is_written_is_read_and_is_the_users_alone(tmp_path: Path) -> None:
    path = tmp_path / "key"
    assert read_private(path) is None
    write_private(path, b"one")
    write_private(path, b"two")
    assert read_private(path) == b"two"
    assert path.stat().st_mode & 0o777 == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["key"]


def test_a_link_is_replaced_by_a_write_and_refused_by_a_read(tmp_path: Path) -> None:
    target, path = tmp_path / "target", tmp_path / "key"
    target.write_text("not yours")
    path.symlink_to(target)
    with pytest.raises(Forbidden):
        read_private(path)
    write_private(path, b"mine")
    assert (target.read_text(), path.is_symlink()) == ("not yours", False)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text("secret")
    path.chmod(0o644)
    with pytest.raises(Forbidden, match="other users") as caught:
        read_private(path)
    assert "chmod 600" in (caught.value.hint or "")


def test_a_pipe_or_folder_in_its_place_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Forbidden, match="regular file"):
        read_private(tmp_path / "pipe")
    with pytest.raises(Forbidden, match="regular file"):
        read_private(tmp_path)


def test_a_folder_is_made_private_and_an_open_one_tightened(tmp_path: Path) -> None:
    made = secure_folder(tmp_path / "a" / "b")
    assert made.stat().st_mode & 0o777 == 0o700
    made.chmod(0o755)
    assert secure_folder(made).stat().st_mode & 0o777 == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(Forbidden):
        secure_folder(tmp_path / "file")
