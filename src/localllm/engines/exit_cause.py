"""Why a process ended, in one sentence for a person, from its exit code and what the kernel counted."""

from __future__ import annotations

import signal
from pathlib import Path

_SIGNALS = {
    "SIGABRT": "It gave up on an internal check (abort).",
    "SIGSEGV": "It touched memory that is not its own (segmentation fault).",
    "SIGBUS": "It read a part of a file that is no longer there (bus error): was the model file changed or cut?",
    "SIGILL": "It used an instruction that this CPU does not have; the engine was built for another one.",
    "SIGFPE": "It divided by zero.",
    "SIGKILL": "It was killed from outside (kill -9).",
    "SIGTERM": "It was ended from outside.",
    "SIGINT": "It was interrupted from outside.",
    "SIGHUP": "Its terminal went away.",
}
_WINDOWS = {
    0xC0000005: "It touched memory that is not its own (access violation).",
    0xC000001D: _SIGNALS["SIGILL"],
    0xC0000017: "It ran out of memory.",
    0xC0000135: "A library (DLL) that it needs is missing.",
    0xC0000409: _SIGNALS["SIGABRT"],
}
_OUT_OF_MEMORY = "The system killed it because memory ran out."
_VMSTAT = Path("/proc/vmstat")
_CGROUP = Path("/proc/self/cgroup")
_CGROUP_ROOT = Path("/sys/fs/cgroup")


def explain_exit(exit_code: int | None, *, oom_killed: bool = False) -> str:
    """One sentence. ``exit_code`` is Python's: minus the signal on POSIX. ``oom_killed``: the kernel's count grew."""
    if exit_code is None:
        return "It ended, and the system did not say how."
    if exit_code < 0:
        name = _signal_name(-exit_code)
        if name == "SIGKILL" and oom_killed:
            return _OUT_OF_MEMORY
        return _SIGNALS.get(name, f"It was ended by {name}.")
    if exit_code in _WINDOWS:
        return _WINDOWS[exit_code]
    if exit_code == 0:
        return "It ended by itself without an error."
    if exit_code == 127:
        return "Its program could not be started."
    return f"It ended with exit code {exit_code}."


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def count_oom_kills() -> int:
    """How many processes the kernel killed for memory so far: this cgroup's count, else the machine's; 0 if unknown."""
    for line in _read(_CGROUP).splitlines():
        if line.startswith("0::"):
            events = _counter(_CGROUP_ROOT / line[3:].lstrip("/") / "memory.events")
            if events is not None:
                return events
    return _counter(_VMSTAT) or 0


def _counter(path: Path) -> int | None:
    for line in _read(path).splitlines():
        name, _, value = line.partition(" ")
        if name == "oom_kill" and value.isdigit():
            return int(value)
    return None


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
