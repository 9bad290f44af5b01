"""The terminal app on a pseudo-terminal with the real service: it starts one, outlives it, and can be killed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from localllm.core.control import Identity
from localllm.settings.identity import read_identity
from localllm.settings.paths import Paths
from tests.support.pty_process import PtyProcess
from tests.support.until import wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")

START_SECONDS = 60.0
APP = [sys.executable, "-m", "localllm"]


@pytest.fixture
def env(isolated_home: Path, paths: Paths) -> Iterator[dict[str, str]]:
    """A terminal's environment with a home of its own; a service that was started in it is ended."""
    environment = {**os.environ, "TERM": "xterm-256color", "LOCALLLM_SERVER_PORT": "0"}
    for name in ("SSH_CONNECTION", "SSH_TTY"):
        environment.pop(name, None)
    yield environment
    identity = read_identity(paths)
    if identity is not None and psutil.pid_exists(identity.pid):
        os.kill(identity.pid, signal.SIGTERM)
        _wait_gone(identity.pid)


def service_of(app: PtyProcess, paths: Paths, *, besides: int | None = None) -> Identity:
    """The service whose address the app shows; another one than that of pid ``besides``."""

    def shown(output: bytes) -> bool:
        identity = read_identity(paths)
        return (
            identity is not None
            and identity.pid != besides
            and f"{identity.host}:{identity.port}".encode() in output
        )

    assert app.read_until(shown, START_SECONDS) is not None, app.output[-2000:]
    identity = read_identity(paths)
    assert identity is not None
    return identity


def test_the_service_outlives_a_killed_app_and_the_next_app_finds_it(
    env: dict[str, str], paths: Paths
) -> None:
    with PtyProcess(APP, env) as app:
        service = service_of(app, paths)
        app.signal(signal.SIGKILL)
        assert app.wait(10) == -signal.SIGKILL
    assert psutil.pid_exists(service.pid)
    with PtyProcess(APP, env) as app:
        assert service_of(app, paths).pid == service.pid
        # a lost terminal ends the app, not the service
        app.hang_up()
        assert app.wait(10) is not None
    assert psutil.pid_exists(service.pid)


def test_a_service_that_dies_under_the_app_is_brought_back_from_it(env: dict[str, str], paths: Paths) -> None:
    with PtyProcess(APP, env) as app:
        first = service_of(app, paths)
        os.kill(first.pid, signal.SIGKILL)
        assert app.read_until(lambda out: b"Trying again" in out, START_SECONDS) is not None
        app.send(b"\x1b")
        app.read(0.5)
        app.send(b"S")
        second = service_of(app, paths, besides=first.pid)
        assert second.nonce != first.nonce
        # capital Q asks, y stops the service and leaves
        app.send(b"Q")
        assert app.read_until(lambda out: b"Stop the service?" in out, START_SECONDS) is not None
        app.send(b"y")
        assert app.wait(START_SECONDS) == 0
        assert app.modes() == app.modes_before
    _wait_gone(second.pid)


def _wait_gone(pid: int) -> None:
    """A service that was not started by us is no child of ours, yet it may be a zombie of this container's init."""
    wait_until(
        lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE,
        what=f"the end of {pid}",
    )
