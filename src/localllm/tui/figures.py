"""Numbers in as few cells as they can be read in: the strip and the tables have no room for `core.units`' long forms."""

from __future__ import annotations

from localllm.core.units import GIB, MIB, format_context, format_count

UNKNOWN = "–"


def gib(count: int | None) -> str:
    """Bytes as a bare number of GiB: ``5.1``, ``128``; ``–`` when unknown."""
    if count is None:
        return UNKNOWN
    value = count / GIB
    shown = f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
    return shown.removesuffix(".0") if value >= 10 else shown


def size(count: int | None) -> str:
    """Bytes with the unit that keeps it short: ``241 M``, ``4.7 G``."""
    if count is None:
        return UNKNOWN
    if count < 1000 * MIB:
        return f"{count / MIB:.0f} M"
    return f"{count / GIB:.1f} G" if count < 1000 * GIB else f"{count / GIB / 1024:.1f} T"


def tokens(count: int | None) -> str:
    """A number of tokens that were counted: ``812``, ``1.2k``."""
    return UNKNOWN if count is None else format_count(count)


def context(length: int | None) -> str:
    """A context length: ``16k``, ``128k``."""
    return UNKNOWN if length is None else format_context(length)


def milliseconds(value: float | None) -> str:
    """A latency: ``0.4 ms``, ``180 ms``, ``1.2 s``, ``2 min``."""
    if value is None:
        return UNKNOWN
    if value < 10:
        return f"{value:.1f} ms"
    if value < 1000:
        return f"{value:.0f} ms"
    if value < 60_000:
        return f"{value / 1000:.1f} s"
    return f"{value / 60_000:.0f} min"


def speed(value: float | None) -> str:
    """Tokens per second without the unit: ``4.2``, ``42.1``, ``812``."""
    if value is None:
        return UNKNOWN
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def ago(seconds: float) -> str:
    """How long ago, in at most three cells: ``now``, ``2m``, ``5h``, ``3d``, ``8w``."""
    if seconds < 60:
        return "now"
    for limit, unit, letter in ((3600, 60, "m"), (86_400, 3600, "h"), (14 * 86_400, 86_400, "d")):
        if seconds < limit:
            return f"{int(seconds // unit)}{letter}"
    weeks = int(seconds // (7 * 86_400))
    return f"{weeks}w" if weeks < 100 else ">1y"


def lasting(seconds: float) -> str:
    """A span: ``3.2 s``, ``48 s``, ``4 min``, ``2 h``."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.0f} h"


def share(used: int | None, total: int | None) -> float | None:
    """``used`` of ``total`` as 0…1, None when either is unknown or there is nothing to share."""
    return None if used is None or not total else max(0.0, min(1.0, used / total))
