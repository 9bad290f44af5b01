"""Whether the machine is running out of memory right now: the kernel's pressure stall information and cgroup events.

Free memory tells how much there is, pressure tells that work is already waiting for it. The service unloads before a
small box thrashes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct

from localllm.hardware.asking import Asker
from localllm.hardware.cgroup import cgroup_folders, cgroup_limits
from localllm.hardware.parsing import colon_kilobytes, colon_values, to_int, word_pairs

# Share of the last ten seconds in which every task waited for memory (or some did) from which it counts.
_CRITICAL_FULL_PERCENT = 10.0
_HIGH_SOME_PERCENT = 10.0
# Memory left, of what there is or of the cgroup's limit, under which it counts whatever the stalls say.
_CRITICAL_FREE_SHARE = 0.03
_HIGH_FREE_SHARE = 0.08

_PSI = re.compile(r"^(some|full) avg10=(\d{1,3}(?:\.\d{1,4})?)\b", re.MULTILINE | re.ASCII)
# macOS's kern.memorystatus_vm_pressure_level.
_DARWIN_LEVELS = {1: "normal", 2: "high", 4: "critical"}


class PressureLevel(StrEnum):
    NORMAL = "normal"
    HIGH = "high"
    CRITICAL = "critical"


class MemoryPressure(Struct, frozen=True, kw_only=True):
    """One reading; ``None`` = the kernel does not tell.

    ``some_percent`` and ``full_percent`` are the shares of the last ten seconds in which some or all tasks waited for
    memory (the worse of the machine's and our cgroup's); ``free_share`` is what is left, 0 to 1; ``oom_kills`` counts
    processes the kernel killed in our cgroup.
    """

    level: PressureLevel | None = None
    some_percent: float | None = None
    full_percent: float | None = None
    free_share: float | None = None
    oom_kills: int | None = None


def read_pressure(asker: Asker) -> MemoryPressure:
    """Read the pressure now. Costs a dozen small files; never raises."""
    if asker.system == "Darwin":
        text = asker.output("sysctl pressure", ("sysctl", "kern.memorystatus_vm_pressure_level"))
        level = to_int(colon_values(text).get("kern.memorystatus_vm_pressure_level"))
        known = _DARWIN_LEVELS.get(level or 0)
        return MemoryPressure(level=None if known is None else PressureLevel(known))
    if asker.system != "Linux":
        return MemoryPressure()
    folders = cgroup_folders(asker)
    stalls = [parse_psi(asker.text("/proc/pressure/memory"))]
    stalls += [parse_psi(asker.text(f"{folder}/memory.pressure")) for folder in folders[:1]]
    some = _worst(stall.get("some") for stall in stalls)
    full = _worst(stall.get("full") for stall in stalls)
    free = _free_share(asker)
    kills = [word_pairs(asker.text(f"{folder}/memory.events")).get("oom_kill") for folder in folders[:1]]
    return MemoryPressure(
        level=judge(some, full, free),
        some_percent=some,
        full_percent=full,
        free_share=free,
        oom_kills=kills[0] if kills else None,
    )


def parse_psi(text: str | None) -> dict[str, float]:
    """``some`` and ``full`` → percent of the last ten seconds, from a pressure file (Documentation/accounting/psi)."""
    return {kind: float(value) for kind, value in _PSI.findall(text or "") if float(value) <= 100}


def judge(some: float | None, full: float | None, free_share: float | None) -> PressureLevel | None:
    """The level that the figures mean together; ``None`` when none is known."""
    if some is None and full is None and free_share is None:
        return None
    if (full or 0) >= _CRITICAL_FULL_PERCENT or _below(free_share, _CRITICAL_FREE_SHARE):
        return PressureLevel.CRITICAL
    if (some or 0) >= _HIGH_SOME_PERCENT or _below(free_share, _HIGH_FREE_SHARE):
        return PressureLevel.HIGH
    return PressureLevel.NORMAL


def _below(share: float | None, limit: float) -> bool:
    return share is not None and share < limit


def _free_share(asker: Asker) -> float | None:
    """The smaller of what the machine and what our cgroups have left, as a share of their size."""
    figures = colon_kilobytes(asker.text("/proc/meminfo"))
    total, available = figures.get("MemTotal"), figures.get("MemAvailable")
    shares = [] if not total or available is None else [min(1.0, available / total)]
    for group in cgroup_limits(asker).memory:
        if group.room_bytes is not None and group.limit_bytes > 0:
            shares.append(group.room_bytes / group.limit_bytes)
    return min(shares, default=None)


def _worst(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)
