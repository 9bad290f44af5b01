"""What llama.cpp says it allocated: its "buffer size" lines, read from the log of a load.

This is the truth the planner is compared with after every load. Works on the log of every llama.cpp (llama-server,
xllamacpp, llama-cpp-python, Ollama's runner), whatever stands before the function's name on a line.
"""

from __future__ import annotations

import re
from typing import Literal

from msgspec import Struct

from localllm.core.units import MIB

BufferKind = Literal["weights", "kv", "recurrent", "compute", "output"]

_LINE = re.compile(
    r"(?P<function>\w+):\s+(?P<device>[\w.:+-]+(?: \d+)?)\s+"
    r"(?P<what>model|KV|RS|compute|output)\s+buffer size\s*=\s*(?P<mib>\d+(?:\.\d+)?)\s*MiB"
)
_CACHE = re.compile(r"llama_(?P<cache>kv_cache|memory_recurrent): size =\s*(?P<mib>\d+(?:\.\d+)?) MiB")
_KINDS: dict[str, BufferKind] = {
    "model": "weights",
    "KV": "kv",
    "RS": "recurrent",
    "compute": "compute",
    "output": "output",
}


class LoggedBuffer(Struct, frozen=True):
    """``device`` as the engine names it (``CPU``, ``CPU_Mapped``, ``CUDA0``, ``CUDA_Host`` …)."""

    kind: BufferKind
    device: str
    bytes: int


def parse_buffers(text: str) -> tuple[LoggedBuffer, ...]:
    """The buffers of the last load in this log, in the order they were allocated.

    llama.cpp may try a load before the real one (``fit`` pass, simulation with ``no_alloc``): those print zeros, or
    the same line twice. Zeros are skipped. A weights line after a compute line starts a new load, which replaces
    what was read before; several lines of one kind and device within a load (split files, the two caches of a
    sliding-window model) add up.
    """
    found: dict[tuple[BufferKind, str], int] = {}
    finished = False
    for match in _LINE.finditer(text):
        kind = _KINDS[match["what"]]
        size_bytes = round(float(match["mib"]) * MIB)
        if size_bytes == 0:
            continue
        if kind == "weights" and finished:
            found.clear()
            finished = False
        key = (kind, match["device"])
        if kind == "compute":
            # the scheduler may reserve again for another batch: the last size is the one that stays
            finished = True
            found[key] = size_bytes
        else:
            found[key] = found.get(key, 0) + size_bytes
    return tuple(LoggedBuffer(kind, device, size) for (kind, device), size in found.items())


def parse_cache_sizes(text: str) -> tuple[int, int]:
    """(keys and values, recurrent state) in bytes, all devices together, from the caches' own summary lines.

    A load without allocation (a simulation) prints its buffers as zero, but these lines in full.
    """
    sizes = {"kv_cache": 0, "memory_recurrent": 0}
    for match in _CACHE.finditer(text):
        sizes[match["cache"]] += round(float(match["mib"]) * MIB)
    return sizes["kv_cache"], sizes["memory_recurrent"]


def total_bytes(buffers: tuple[LoggedBuffer, ...], kind: BufferKind) -> int:
    """All buffers of one kind, every device."""
    return sum(b.bytes for b in buffers if b.kind == kind)
