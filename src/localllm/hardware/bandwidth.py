"""How fast this machine's memory is, measured: decoding on the CPU is bound by it, and no file tells it.

About 0.15 s. Several threads copy with the C library's ``memmove`` and scan with ``memchr``, over pages that have been
touched before; both let go of the interpreter's lock. The best pass counts: others on the machine only ever slow it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from collections.abc import Callable

from msgspec import Struct

from localllm.core.errors import ProbeFailed
from localllm.core.units import MIB

# More than the last-level cache of most machines, little enough to be touched in a few hundredths of a second.
_WORKING_SET_BYTES = 128 * MIB
_PHASE_S = 0.045
_MOST_THREADS = 8


class Bandwidth(Struct, frozen=True):
    """Measured memory bandwidth in 10^9 bytes per second. A copy counts what it reads and what it writes."""

    copy_gb_per_s: float
    read_gb_per_s: float
    threads: int

    @property
    def gb_per_s(self) -> float:
        """The better of the two: what decoding can hope for."""
        return max(self.copy_gb_per_s, self.read_gb_per_s)


def measure_bandwidth(
    *, threads: int | None = None, working_set_bytes: int = _WORKING_SET_BYTES
) -> Bandwidth:
    """Measure copying and reading with ``threads`` threads (default: the CPUs this process may use, at most 8).

    Raises:
        ProbeFailed: the C library has no ``memchr`` to call, or there is no memory for the test.
    """
    count = threads or max(1, min(_usable_cpus(), _MOST_THREADS))
    size = max(MIB, working_set_bytes // 2 // count)
    try:
        memchr = _memchr()
        lanes = [(ctypes.create_string_buffer(size), ctypes.create_string_buffer(size)) for _ in range(count)]
    except (OSError, AttributeError, MemoryError) as error:
        raise ProbeFailed(f"Memory bandwidth cannot be measured here: {error}") from error

    def copy(lane: int) -> int:
        ctypes.memmove(lanes[lane][1], lanes[lane][0], size)
        return 2 * size

    def read(lane: int) -> int:
        memchr(lanes[lane][0], 1, size)  # all bytes are 0, so it looks at every one
        return size

    _run(count, copy, 0.0)  # touches every page of both buffers
    copied, scanned = _run(count, copy, _PHASE_S), _run(count, read, _PHASE_S)
    return Bandwidth(copy_gb_per_s=round(copied, 1), read_gb_per_s=round(scanned, 1), threads=count)


def _run(count: int, work: Callable[[int], int], seconds: float) -> float:
    """Let all threads do a pass together, again and again for ``seconds``; the best pass in 10^9 bytes per second.

    A pass lasts from the first thread's start to the last one's end, so that threads which only run one after the
    other do not add up to a bandwidth that the memory does not have.
    """
    spans = [(0.0, 0.0, 0)] * count
    best = 0.0
    until = time.perf_counter() + seconds
    done = False

    def judge() -> None:
        nonlocal best, done
        elapsed = max(end for _, end, _ in spans) - min(begin for begin, _, _ in spans)
        if elapsed > 0:
            best = max(best, sum(moved for _, _, moved in spans) / elapsed)
        done = time.perf_counter() >= until

    barrier = threading.Barrier(count, action=judge)

    def lane(number: int) -> None:
        while not done:
            began = time.perf_counter()
            moved = work(number)
            spans[number] = (began, time.perf_counter(), moved)
            barrier.wait()

    workers = [threading.Thread(target=lane, args=(number,), daemon=True) for number in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return best / 1e9


def _memchr() -> Callable[..., object]:
    library = ctypes.CDLL("msvcrt" if sys.platform == "win32" else None)
    memchr = library.memchr
    memchr.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    memchr.restype = ctypes.c_void_p
    return memchr


def _usable_cpus() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
