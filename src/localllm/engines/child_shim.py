"""Runs before a supervised child's own program: binds its life to ours and makes it the first to go when memory ends.

Started as ``python -I -S child_shim.py OWNER_PID PROGRAM ARGUMENT…`` and replaced by the program with ``exec``. A
program of its own instead of a ``preexec_fn``: that would run Python between fork and exec in a process with
threads, where any lock may be held for ever. Only the standard library, nothing of localllm: it starts in 10 ms.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_OOM_SCORE_ADJ = "500"  # of 1000: well before the service (0), and before most of a desktop


def main(arguments: list[str]) -> None:
    owner, *command = arguments
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        with contextlib.suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE_ADJ)
    if os.getppid() != int(owner):
        sys.exit("The process that started this engine has gone.")  # it died before prctl could tell us
    _no_core_file()
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]} cannot be started: {error.strerror}", file=sys.stderr)
        sys.exit(127)


def _no_core_file() -> None:
    """A core file of an engine is as large as the model and holds the prompts."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main(sys.argv[1:])
