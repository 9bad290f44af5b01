"""The app as a program on a real (pseudo) terminal: how it comes, how it goes, and what it does to odd ones."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from localllm.tui.terminal import HANG_UP_EXIT
from tests.support.pty_process import PtyProcess

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are POSIX")

START_SECONDS = 30.0
LEAVE_SECONDS = 10.0
ENTER_ALTERNATE, LEAVE_ALTERNATE = b"\x1b[?1049h", b"\x1b[?1049l"


@contextmanager
def running(screen: str = "chat", size: tuple[int, int] = (80, 24), **changes: str) -> Iterator[PtyProcess]:
    env = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", **changes}
    env.pop("SSH_CONNECTION", None)
    argv = [sys.executable, "-m", "tests.support.fake_app", screen]
    with PtyProcess(argv, env, size) as process:
        yield process


def up(process: PtyProcess) -> None:
    """The frame is drawn and the service's state is in it."""
    assert process.read_until(lambda out: b"qwen3-8b" in out, START_SECONDS) is not None, process.output[
        -2000:
    ]
    process.read(0.3)


def left_clean(process: PtyProcess) -> None:
    assert process.output.rindex(LEAVE_ALTERNATE) > process.output.rindex(ENTER_ALTERNATE)
    assert process.output.rindex(b"\x1b[?25h") > process.output.rindex(ENTER_ALTERNATE)
    assert process.modes() == process.modes_before


def test_it_comes_without_a_word_and_goes_without_a_trace() -> None:
    with running("monitor") as process:
        up(process)
        assert process.output.startswith(b"\x1b")
        assert re.match(rb"(\x1b\[[?>=0-9;]*[a-zA-Z$])*\x1b\[\?1049h", process.output)
        process.send(b"q")
        assert process.wait(LEAVE_SECONDS) == 0
        left_clean(process)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_clean(number: signal.Signals) -> None:
    with running() as process:
        up(process)
        process.signal(number)
        assert process.wait(LEAVE_SECONDS) == 0
        left_clean(process)


def test_a_lost_connection_ends_it() -> None:
    with running() as process:
        up(process)
        process.hang_up()
        assert process.wait(LEAVE_SECONDS) is not None


def test_a_lost_terminal_ends_even_an_app_that_is_stuck() -> None:
    with running("monitor", FAKE_STUCK="1") as process:
        up(process)
        process.send(b"w")  # the app now sleeps in its event loop for a minute
        process.read(0.5)
        process.hang_up()
        assert process.wait(LEAVE_SECONDS) == HANG_UP_EXIT


def test_a_dumb_terminal_gets_a_sentence() -> None:
    with running(TERM="dumb") as process:
        assert process.wait(START_SECONDS) == 1
        assert b"localllm status" in process.output
        assert ENTER_ALTERNATE not in process.output
        assert process.modes() == process.modes_before


@pytest.mark.parametrize("screen", ["chat", "monitor"])
def test_a_terminal_without_unicode_gets_ascii(screen: str) -> None:
    with running(screen, PYTHONUTF8="0", PYTHONIOENCODING="ascii") as process:
        up(process)
        assert process.output.isascii()
        assert b"\\u" not in process.output
        assert re.search(rb"m\+\x1b", process.output)
        process.signal(signal.SIGTERM)
        assert process.wait(LEAVE_SECONDS) == 0


def test_no_color_means_no_colour() -> None:
    with running("models", NO_COLOR="1") as process:
        up(process)
        colours = re.findall(rb"[34]8;2;(\d+);(\d+);(\d+)", process.output)
        assert all(red == green == blue for red, green, blue in colours)


def test_a_tiny_terminal_and_resizes_do_not_crash_it() -> None:
    with running("monitor", (10, 3)) as process:
        assert process.read_until(lambda out: ENTER_ALTERNATE in out, START_SECONDS) is not None
        process.read(0.5)
        process.signal(signal.SIGTERM)
        assert process.wait(LEAVE_SECONDS) == 0


@pytest.mark.parametrize("ticks", ["", "1"], ids=["silent", "sampled"])
def test_an_idle_app_writes_nothing(ticks: str) -> None:
    """Nothing to see means nothing to send, though the service samples its devices all the time."""
    with running(FAKE_IDLE="1", FAKE_TICKS=ticks) as process:
        assert process.read_until(lambda out: b"no model loaded" in out, START_SECONDS) is not None
        process.read(2.0)
        assert process.read(2.0) == 0
