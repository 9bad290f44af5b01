from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest

from localllm.engines.reaper import NONCE_VARIABLE, Reaper

SLEEP = (sys.executable, "-c", "import time; time.sleep(60)")


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(SLEEP, env={**os.environ, NONCE_VARIABLE: "n1"}) as process:
        yield process
        process.kill()


def rewrite(folder: Path, **changes: object) -> None:
    (path,) = folder.glob("child-*.json")
    path.write_bytes(msgspec.json.encode(msgspec.json.decode(path.read_bytes()) | changes))


def orphan(folder: Path, process: subprocess.Popen[bytes]) -> Reaper:
    """A note whose owner is gone: its start time is of another process."""
    reaper = Reaper(folder)
    reaper.note(process.pid, "n1")
    rewrite(folder, owner_started=1.0)
    return reaper


def test_an_orphan_is_ended_and_its_note_removed(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    assert orphan(tmp_path, sleeper).reap() == [sleeper.pid]
    assert sleeper.wait(5) != 0
    assert not list(tmp_path.iterdir())


def test_a_child_of_a_living_service_is_left_alone(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    reaper = Reaper(tmp_path)
    reaper.note(sleeper.pid, "n1")
    assert reaper.reap() == []
    assert psutil.pid_exists(sleeper.pid)
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("change", [{"nonce": "other"}, {"started": 2.0}])
def test_a_reused_pid_is_never_killed(
    tmp_path: Path, sleeper: subprocess.Popen[bytes], change: dict[str, object]
) -> None:
    reaper = orphan(tmp_path, sleeper)
    rewrite(tmp_path, **change)
    assert reaper.reap() == []
    assert sleeper.poll() is None
    assert not list(tmp_path.iterdir())


def test_a_broken_note_and_a_missing_folder_do_no_harm(tmp_path: Path) -> None:
    (tmp_path / "child-1.json").write_bytes(b"{half")
    assert Reaper(tmp_path).reap() == []
    assert not list(tmp_path.iterdir())
    assert Reaper(tmp_path / "nowhere").reap() == []


def test_forget_removes_the_note(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    reaper = Reaper(tmp_path)
    reaper.note(sleeper.pid, "n1")
    reaper.forget(sleeper.pid)
    reaper.forget(sleeper.pid)
    assert not list(tmp_path.iterdir())
