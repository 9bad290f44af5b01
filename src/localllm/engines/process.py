"""A supervised child process: how every engine's native code is started, listened to, ended and never left behind.

Everything that only POSIX has is in this module (and its ``child_shim``); on Windows the child is started plainly.
A child has its own session, so that a Ctrl-C in the terminal is not meant for it; it dies with us (the kernel's
parent-death signal on Linux, end of its stdin elsewhere); it is the kernel's first choice when memory runs out; it
writes no core file and sees no secrets. Its stdin and stdout belong to the engine, its stderr to the log.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from asyncio.subprocess import PIPE, SubprocessStreamProtocol
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from localllm.engines.base import Exit
from localllm.engines.exit_cause import count_oom_kills, explain_exit
from localllm.engines.log_pump import LogPump, RotatedFile
from localllm.engines.reaper import NONCE_VARIABLE, Reaper

_TAIL_WAIT_S = 1.0
_TERM_WAIT_S = 2.0
_STREAM_LIMIT = 1 << 20

# What native code may need to know. Anything else of our environment (tokens, keys, LLAMA_ARG_* that would override
# the plan) stays with us.
_ENVIRONMENT = frozenset(
    [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TEMP",
        "TMP",
        "SYSTEMROOT",
        "WINDIR",
        "COMSPEC",
        "PATHEXT",
        "USERPROFILE",
        "APPDATA",
        "LOCALAPPDATA",
        "NUMBER_OF_PROCESSORS",
        "PYTHONPATH",
        "PYTHONHOME",
        "VIRTUAL_ENV",
    ]
)
_ENVIRONMENT_PREFIXES = (
    *("LC_", "LD_", "DYLD_", "XDG_"),
    *("GGML_", "CUDA_", "NVIDIA_", "HIP_", "HSA_", "ROCR_", "ROCM_", "GPU_", "AMD_"),
    *("ONEAPI_", "SYCL_", "ZE_", "ZES_", "VK_", "OMP_", "KMP_", "MTL_"),
)


@dataclass(frozen=True)
class ChildSpec:
    """What to start. ``name`` names its log file; ``on_line`` gets each logged line on the log's own thread.

    ``stdout_to_log``: what it prints is log too, and there is no ``stdout`` to read.
    """

    name: str
    command: Sequence[str]
    log_dir: Path
    environment: Mapping[str, str] | None = None
    on_line: Callable[[str], None] | None = None
    stdout_to_log: bool = False


class Child:
    """A running (or ended) child. ``exited`` is set once, with the cause; it is never set by hand."""

    def __init__(self, spec: ChildSpec, loop: asyncio.AbstractEventLoop, stderr: int, reaper: Reaper) -> None:
        """``stderr`` is the descriptor to read its log from."""
        self.name = spec.name
        self.exited: asyncio.Future[Exit] = loop.create_future()
        self.stdin: asyncio.StreamWriter
        self.stdout: asyncio.StreamReader
        self.pid: int = 0
        self._loop = loop
        self._pump = LogPump(
            stderr,
            RotatedFile(spec.log_dir / f"{spec.name}.log"),
            on_line=spec.on_line,
            on_end=self._log_ended,
        )
        self._reaper = reaper
        self._transport: asyncio.SubprocessTransport | None = None
        self._oom_kills = count_oom_kills()
        self._asked_to_end = False
        self._our_cause: str | None = None

    @property
    def alive(self) -> bool:
        return self._transport is not None and self._transport.get_returncode() is None

    def stderr_tail(self) -> str:
        """The end of what it logged, at most 8 KB."""
        return self._pump.tail()

    def kill(self, cause: str | None = None) -> None:
        """End it and its descendants now. ``cause`` (a sentence) says why when it was not simply asked to end."""
        if not self.alive:
            return  # how it ended is known already
        if cause is None:
            self._asked_to_end = True
        elif self._our_cause is None:
            self._our_cause = cause
        signal_group(self.pid, _SIGKILL)

    async def stop(self, grace_s: float = 5.0) -> Exit:
        """Ask it to end by closing its stdin, then insist; returns when it is gone. Cancelled: kills at once."""
        if self.alive:
            self._asked_to_end = True
        try:
            self.stdin.close()
            await asyncio.wait({self.exited}, timeout=grace_s)
            if self.alive:
                signal_group(self.pid, signal.SIGTERM)
                await asyncio.wait({self.exited}, timeout=_TERM_WAIT_S)
        finally:
            self.kill()
        return await asyncio.shield(self.exited)

    def attach(self, transport: asyncio.SubprocessTransport, protocol: SubprocessStreamProtocol) -> None:
        """The process is there. Called once, and before any news of its end."""
        assert protocol.stdin is not None
        self.stdin = protocol.stdin
        if protocol.stdout is not None:
            self.stdout = protocol.stdout
        self._transport = transport
        self.pid = transport.get_pid()
        self._pump.start()

    def process_exited(self) -> None:
        """The process is gone. Its last words may still be in the pipe: wait for them, but not for long."""
        signal_group(
            self.pid, _SIGKILL
        )  # descendants it may have left; the group is gone when there are none
        self._reaper.forget(self.pid)
        if self._pump.ended:
            self._settle()
        else:
            self._loop.call_later(_TAIL_WAIT_S, self._settle)

    def _log_ended(self) -> None:
        """Called on the log's thread."""
        try:
            self._loop.call_soon_threadsafe(self._settle_if_gone)
        except RuntimeError:
            return  # the loop was closed before the child was: nobody is left to tell

    def _settle_if_gone(self) -> None:
        if not self.alive:
            self._settle()

    def _settle(self) -> None:
        if self.exited.done() or self._transport is None:
            return
        code = self._transport.get_returncode()
        oom_killed = count_oom_kills() > self._oom_kills
        cause = self._our_cause or explain_exit(code, oom_killed=oom_killed)
        expected = self._asked_to_end and self._our_cause is None
        self.exited.set_result(
            Exit(expected=expected, exit_code=code, cause=cause, stderr_tail=self.stderr_tail())
        )
        self._transport.close()


class _Protocol(SubprocessStreamProtocol):
    def __init__(self, child: Child, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit=_STREAM_LIMIT, loop=loop)
        self._child = child

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert isinstance(transport, asyncio.SubprocessTransport)
        self._child.attach(transport, self)

    def process_exited(self) -> None:
        super().process_exited()
        self._child.process_exited()


async def spawn(spec: ChildSpec, reaper: Reaper) -> Child:
    """Start a child. Call it on the main thread: the kernel's parent-death signal follows the thread that forked.

    Raises:
        OSError: the program cannot be started.
    """
    loop = asyncio.get_running_loop()
    nonce = secrets.token_hex(16)
    read_end, write_end = os.pipe()
    child = Child(spec, loop, read_end, reaper)
    windows = sys.platform == "win32"
    shim = () if windows else (sys.executable, "-I", "-S", str(_SHIM), str(os.getpid()))
    try:
        await loop.subprocess_exec(
            lambda: _Protocol(child, loop),
            *(*shim, *spec.command),
            stdin=PIPE,
            stdout=write_end if spec.stdout_to_log else PIPE,
            stderr=write_end,
            env=child_environment(os.environ, spec.environment or {}, nonce),
            start_new_session=not windows,
            creationflags=_NEW_PROCESS_GROUP if windows else 0,
        )
    except BaseException:
        if child.pid == 0:
            os.close(read_end)  # the log never began to read it
        child.kill()
        raise
    finally:
        os.close(write_end)
    reaper.note(child.pid, nonce)
    return child


def child_environment(ours: Mapping[str, str], extra: Mapping[str, str], nonce: str) -> dict[str, str]:
    """What the child sees: the names native code needs, never a key or token of ours."""
    kept = {
        name: value
        for name, value in ours.items()
        if name.upper() in _ENVIRONMENT or name.upper().startswith(_ENVIRONMENT_PREFIXES)
    }
    # A backtrace would start a debugger in a process that holds prompts, and can hang for minutes.
    return kept | {"GGML_NO_BACKTRACE": "1", "PYTHONUNBUFFERED": "1", NONCE_VARIABLE: nonce} | dict(extra)


def signal_group(pid: int, number: int) -> None:
    """Send a signal to a child's whole session; one that is gone already is fine."""
    if pid <= 1:
        raise ValueError(f"{pid} is not a child")  # 0 would mean our own process group
    try:
        if sys.platform == "win32":
            os.kill(pid, number)
        else:
            os.killpg(pid, number)
    except (ProcessLookupError, PermissionError):
        return  # macOS says "not permitted" of a group that has only zombies left


_SHIM = Path(__file__).with_name("child_shim.py")
_NEW_PROCESS_GROUP = 0x00000200
_SIGKILL: int = signal.SIGTERM if sys.platform == "win32" else signal.SIGKILL
