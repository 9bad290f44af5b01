from __future__ import annotations

import os

import pytest

from localllm.core.control import Identity
from localllm.core.errors import AlreadyRunning, Forbidden
from localllm.service.lock import ServiceLock
from localllm.settings.identity import write_identity
from localllm.settings.paths import Paths


def test_the_second_is_told_where_the_first_is(paths: Paths) -> None:
    with ServiceLock(paths):
        with pytest.raises(AlreadyRunning, match="starting"):
            ServiceLock(paths).acquire()
        write_identity(
            paths, Identity(version="1", nonce="n", pid=42, host="127.0.0.1", port=99, started_at=0.0)
        )
        with pytest.raises(AlreadyRunning, match=r"http://127.0.0.1:99 \(pid 42\)"):
            ServiceLock(paths).acquire()
    with ServiceLock(paths):
        pass


@pytest.mark.skipif(os.name != "posix", reason="links are POSIX's")
def test_a_planted_lock_file_is_refused(paths: Paths) -> None:
    paths.state_dir.mkdir(parents=True, mode=0o700)
    paths.lock_file.symlink_to(paths.state_dir / "elsewhere")
    with pytest.raises(Forbidden):
        ServiceLock(paths).acquire()


@pytest.mark.skipif(os.name != "posix", reason="links are POSIX's")
def test_a_planted_state_folder_is_refused(paths: Paths) -> None:
    paths.state_dir.parent.mkdir(parents=True)
    (paths.state_dir.parent / "real").mkdir()
    paths.state_dir.symlink_to(paths.state_dir.parent / "real")
    with pytest.raises(Forbidden, match="not a folder of its own"):
        ServiceLock(paths).acquire()
