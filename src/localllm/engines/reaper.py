"""Notes on disk about which children are ours, so that the next start can end those a crash left behind.

Linux children die with the service (parent-death signal) and well-behaved ones elsewhere at the end of their stdin;
this is for the rest. A pid alone proves nothing, since numbers are reused: a process is ended only if its start time
and the nonce in its environment are those we noted, and only if the service that started it is gone.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import psutil

NONCE_VARIABLE = "LOCALLLM_CHILD_NONCE"
_SAME_START_S = 1.5  # resolution and rounding of start times differ between platforms


class _Note(msgspec.Struct, frozen=True):
    pid: int
    started: float
    nonce: str
    owner_pid: int
    owner_started: float


class Reaper:
    """One file per child in ``folder``. Several engines, and services of several users, can share the code safely."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def note(self, pid: int, nonce: str) -> None:
        """Write down a child that was just started. A full disk costs the note, not the start."""
        started, owner_started = _started(pid), _started(os.getpid())
        if started is None or owner_started is None:
            return
        note = _Note(pid, started, nonce, os.getpid(), owner_started)
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._path(pid).write_bytes(msgspec.json.encode(note))
        except OSError:
            return

    def forget(self, pid: int) -> None:
        try:
            self._path(pid).unlink(missing_ok=True)
        except OSError:
            return

    def reap(self) -> list[int]:
        """End what dead services left behind; returns the pids that were ended. Call it before the first start."""
        ended = []
        for path in sorted(self._folder.glob("child-*.json")):
            try:
                note = msgspec.json.decode(path.read_bytes(), type=_Note)
            except (OSError, msgspec.DecodeError):
                path.unlink(missing_ok=True)  # half-written when the disk was full
                continue
            if _is(note.owner_pid, note.owner_started):
                continue
            if _is(note.pid, note.started) and _nonce(note.pid) == note.nonce:
                _kill_tree(note.pid)
                ended.append(note.pid)
            path.unlink(missing_ok=True)
        return ended

    def _path(self, pid: int) -> Path:
        return self._folder / f"child-{pid}.json"


def _started(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except psutil.Error:
        return None


def _is(pid: int, started: float) -> bool:
    now = _started(pid)
    return now is not None and abs(now - started) < _SAME_START_S


def _nonce(pid: int) -> str | None:
    try:
        return psutil.Process(pid).environ().get(NONCE_VARIABLE)
    except psutil.Error:
        return None


def _kill_tree(pid: int) -> None:
    try:
        process = psutil.Process(pid)
        for member in (*process.children(recursive=True), process):
            member.kill()
    except psutil.NoSuchProcess:
        return  # it ended while we looked
