"""A program on a terminal of its own: what it writes, how it leaves the terminal, what it costs.

The child leads a session with the terminal as its controlling one, so that closing our end hangs up on it as a lost
SSH connection does. Linux and macOS.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self


class PtyProcess:
    """A context manager; at its end the child is gone. ``output`` is everything it wrote."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], size: tuple[int, int] = (80, 24)) -> None:
        self.output = b""
        self.started_at = time.perf_counter()
        self._master, slave = pty.openpty()
        self._slave = slave
        columns, lines = size
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.modes_before = self.modes()
        name = os.ttyname(slave)
        actions = [
            (os.POSIX_SPAWN_OPEN, 0, name, os.O_RDWR, 0),
            (os.POSIX_SPAWN_DUP2, 0, 1),
            (os.POSIX_SPAWN_DUP2, 0, 2),
        ]
        self.started_at = time.perf_counter()
        self.pid = os.posix_spawn(argv[0], list(argv), dict(env), file_actions=actions, setsid=True)
        self.status: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait(5)
        self.hang_up()
        os.close(self._slave)

    def modes(self) -> list[Any]:
        """The line's settings, to compare before and after."""
        return termios.tcgetattr(self._slave)

    def send(self, keys: bytes) -> None:
        os.write(self._master, keys)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def hang_up(self) -> None:
        """Close our end, as a lost connection does."""
        if self._master >= 0:
            os.close(self._master)
            self._master = -1

    def read(self, seconds: float) -> int:
        """Take what comes within ``seconds``; how many bytes that was."""
        before = len(self.output)
        until = time.perf_counter() + seconds
        while (left := until - time.perf_counter()) > 0 and self._master >= 0:
            self._take(left)
        return len(self.output) - before

    def read_until(self, done: Callable[[bytes], bool], seconds: float) -> float | None:
        """Read until ``done(output)``; the seconds since the start, None when it did not happen in time."""
        until = time.perf_counter() + seconds
        while True:
            if done(self.output):
                return time.perf_counter() - self.started_at
            left = until - time.perf_counter()
            if left <= 0 or not self._take(left):
                return None

    def wait(self, seconds: float) -> int | None:
        """The exit code (negative: the signal), or None when it still runs; what it writes meanwhile is read."""
        until = time.perf_counter() + seconds
        while self.status is None and time.perf_counter() < until:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
            elif self._master >= 0:
                self._take(0.05)
            else:
                time.sleep(0.02)
        while self._master >= 0 and self._take(0.05):
            pass
        return self.status

    def _take(self, seconds: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], seconds)
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:
            return False
        self.output += data
        return bool(data)
