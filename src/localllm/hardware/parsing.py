"""Reading the text that kernels and drivers print. Nonsense is ``None``: a parser here never raises."""

from __future__ import annotations

import re

# No machine has more; a larger figure is a driver's "unlimited" or garbage.
LARGEST_MEMORY_BYTES = 1 << 50

_COLON_KB = re.compile(r"^(\w[\w()]*):\s+(\d{1,18})(?:\s+kB)?\s*$", re.ASCII)


def to_int(text: str | None, *, base: int = 10) -> int | None:
    """A whole number of 64 bits; ``base=16`` takes an ``0x`` prefix too."""
    if text is None or len(text) > 40:
        return None
    try:
        number = int(text.strip(), base)
    except ValueError:
        return None
    return number if -(1 << 63) <= number < 1 << 64 else None


def to_bytes(text: str | None) -> int | None:
    """A plausible amount of memory in bytes, 0 included."""
    return plausible_bytes(to_int(text))


def plausible_bytes(number: int | None) -> int | None:
    """``number`` if it can be an amount of memory on one machine."""
    return number if number is not None and 0 <= number <= LARGEST_MEMORY_BYTES else None


def to_scaled(text: str | None, divisor: float, *, low: float, high: float) -> float | None:
    """``text / divisor`` if it lies within ``low`` … ``high``: sensors report milli- or micro-units, and garbage."""
    number = to_int(text)
    if number is None:
        return None
    value = number / divisor
    return value if low <= value <= high else None


def colon_kilobytes(text: str | None) -> dict[str, int]:
    """``/proc/meminfo``: name → bytes (its kB are 1,024)."""
    found: dict[str, int] = {}
    for line in (text or "").splitlines():
        match = _COLON_KB.match(line)
        if match is not None:
            found[match.group(1)] = int(match.group(2)) * 1024
    return found


def word_pairs(text: str | None) -> dict[str, int]:
    """Lines of ``name number`` (``memory.stat``, KFD ``properties``): name → number."""
    found: dict[str, int] = {}
    for line in (text or "").splitlines():
        parts = line.split()
        number = to_int(parts[1]) if len(parts) == 2 else None
        if number is not None:
            found[parts[0]] = number
    return found


def colon_values(text: str | None) -> dict[str, str]:
    """Lines of ``name: value`` (``sysctl``, ``fdinfo``): name → value; the first of a name counts."""
    found: dict[str, str] = {}
    for line in (text or "").splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def cpu_list(text: str | None) -> frozenset[int]:
    """A kernel CPU list: ``"0-3,8"`` → {0, 1, 2, 3, 8}."""
    found: set[int] = set()
    for part in (text or "").split(","):
        first, dash, last = part.strip().partition("-")
        low, high = to_int(first), to_int(last if dash else first)
        if low is not None and high is not None and 0 <= low <= high < 1 << 16:
            found.update(range(low, high + 1))
    return frozenset(found)
