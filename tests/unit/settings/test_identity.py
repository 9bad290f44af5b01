from __future__ import annotations

from localllm.core.control import Identity
from localllm.settings.identity import (
    ensure_admin_key,
    read_admin_key,
    read_identity,
    remove_identity,
    write_identity,
)
from localllm.settings.paths import Paths
from localllm.settings.private import secure_folder, write_private


def test_the_admin_key_is_drawn_once_and_kept(paths: Paths) -> None:
    secure_folder(paths.state_dir)
    assert read_admin_key(paths) is None
    key = ensure_admin_key(paths)
    assert len(key) > 40 and ensure_admin_key(paths) == key == read_admin_key(paths)


def test_the_identity_is_there_from_start_to_stop(paths: Paths) -> None:
    secure_folder(paths.state_dir)
    identity = Identity(version="1", nonce="n", pid=1, host="h", port=2, started_at=3.0)
    assert read_identity(paths) is None
    write_identity(paths, identity)
    assert read_identity(paths) == identity
    remove_identity(paths)
    remove_identity(paths)
    assert read_identity(paths) is None


def test_a_half_written_identity_is_none(paths: Paths) -> None:
    secure_folder(paths.state_dir)
    write_private(paths.identity_file, b'{"version": "1"')
    assert read_identity(paths) is None
