"""The host's own memory: how much there is, and how much a process could still get without swapping."""

from __future__ import annotations

import re
import sys

from msgspec import Struct

from localllm.core.units import GIB, MIB
from localllm.hardware.asking import Asker
from localllm.hardware.evidence import Answer, EvidenceBook
from localllm.hardware.parsing import LARGEST_MEMORY_BYTES, colon_kilobytes, colon_values, to_bytes, to_int

_PAGE_SIZE = re.compile(r"page size of (\d{1,9}) bytes", re.ASCII)

_PSUTIL_PROGRAM = r"""
import psutil
try:
    import winreg
    key = winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0")
    print("name:", winreg.QueryValueEx(key, "ProcessorNameString")[0])
except (ImportError, OSError):
    pass
memory = psutil.virtual_memory()
print("total:", memory.total)
print("available:", memory.available)
print("physical:", psutil.cpu_count(logical=False))
print("logical:", psutil.cpu_count())
"""


HOST_MARGIN_RULE = "5 %, 384 MiB to 2 GiB"


class HostMemory(Struct, frozen=True):
    """Bytes of RAM, physical and available; ``None`` = unknown. No limit of a container is in it."""

    total_bytes: int | None
    available_bytes: int | None


def host_memory(asker: Asker, book: EvidenceBook) -> HostMemory:
    """Ask the operating system for its memory; what each source said goes into ``book``."""
    if asker.system == "Darwin":
        return _darwin(asker, book)
    if asker.system == "Linux":
        return _linux(asker, book)
    return _psutil(asker, book)


def host_margin_bytes(total_bytes: int | None) -> int:
    """What planning leaves of the host's memory to everything else: 5 %, at least 384 MiB, at most 2 GiB.

    MemAvailable is an estimate that the kernel's reserves and page cache in use can undercut by a few percent.
    """
    if total_bytes is None:
        return GIB
    return min(max(total_bytes // 20, 384 * MIB), 2 * GIB)


def _linux(asker: Asker, book: EvidenceBook) -> HostMemory:
    figures = colon_kilobytes(asker.text("/proc/meminfo"))
    total = figures.get("MemTotal") or None
    free = figures.get("MemFree")
    # Kernels before 3.14 have no MemAvailable; free plus what is cached is its upper bound, half of it is safe.
    rough = None if free is None else free + figures.get("Cached", 0) // 2
    available = book.first(
        "available_bytes",
        Answer("/proc/meminfo MemAvailable", _within(figures.get("MemAvailable"), total)),
        Answer("/proc/meminfo MemFree + Cached/2", _within(rough, total)),
    )
    return HostMemory(
        total_bytes=book.first("total_bytes", Answer("/proc/meminfo MemTotal", total)),
        available_bytes=available,
    )


def _darwin(asker: Asker, book: EvidenceBook) -> HostMemory:
    total = to_bytes(colon_values(asker.output("sysctl memory", ("sysctl", "hw.memsize"))).get("hw.memsize"))
    text = asker.output("vm_stat", ("vm_stat",))
    match = _PAGE_SIZE.search(text or "")
    pages = {
        name: to_int(value.rstrip(".")) or 0 for name, value in colon_values(text).items() if "Pages" in name
    }
    available = None
    if match is not None and "Pages free" in pages:
        counted = ("Pages free", "Pages inactive", "Pages speculative", "Pages purgeable")
        available = int(match.group(1)) * sum(pages.get(name, 0) for name in counted)
    return HostMemory(
        total_bytes=book.first("total_bytes", Answer("sysctl hw.memsize", total or None)),
        available_bytes=book.first(
            "available_bytes",
            Answer("vm_stat free + inactive + speculative + purgeable", _within(available, total)),
        ),
    )


def _psutil(asker: Asker, book: EvidenceBook) -> HostMemory:
    figures = psutil_figures(asker)
    total = to_bytes(figures.get("total"))
    return HostMemory(
        total_bytes=book.first("total_bytes", Answer("psutil total", total or None)),
        available_bytes=book.first(
            "available_bytes", Answer("psutil available", _within(to_bytes(figures.get("available")), total))
        ),
    )


def psutil_figures(asker: Asker) -> dict[str, str]:
    """What psutil knows, for systems without a reader of their own: name, total, available, physical, logical."""
    return colon_values(asker.output("psutil", (sys.executable, "-c", _PSUTIL_PROGRAM)))


def _within(available: int | None, total: int | None) -> int | None:
    """An available amount that can be true: never more than there is."""
    limit = total or LARGEST_MEMORY_BYTES
    return available if available is not None and 0 <= available <= limit else None
