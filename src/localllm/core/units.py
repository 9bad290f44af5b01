"""Numbers a person reads: bytes, counts and durations, written and parsed in one way everywhere.

Figures are stored in their base unit (bytes, tokens, seconds) and formatted only here.
"""

from __future__ import annotations

import math
import re

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30

_BYTE_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_COUNT_UNITS = ("", "k", "M", "B", "T")
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(i?)b?\s*", re.IGNORECASE)


def format_bytes(count: int) -> str:
    """``5476083712`` → ``"5.1 GiB"``: binary units, one decimal from KiB on."""
    if count < 0:
        return "-" + format_bytes(-count)
    value = float(count)
    for unit in _BYTE_UNITS:
        if value < 1023.95 or unit == _BYTE_UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("unreachable: the last unit takes every value")


def format_count(count: float) -> str:
    """``8030261248`` → ``"8.0B"``, ``1234`` → ``"1.2k"``: decimal units, as model sizes and token counts are spoken."""
    if count < 0:
        return "-" + format_count(-count)
    value = float(count)
    for unit in _COUNT_UNITS:
        if value < 999.95 or unit == _COUNT_UNITS[-1]:
            return f"{value:.0f}" if unit == "" else f"{value:.1f}{unit}"
        value /= 1000
    raise AssertionError("unreachable: the last unit takes every value")


def format_context(tokens: int) -> str:
    """``32768`` → ``"32k"``, ``2500`` → ``"2.4k"``: context lengths count in 1,024s."""
    if tokens < 1024:
        return str(tokens)
    thousands = tokens / 1024
    return f"{thousands:.0f}k" if thousands == int(thousands) or thousands >= 100 else f"{thousands:.1f}k"


def format_duration(seconds: float) -> str:
    """``0.25`` → ``"250 ms"``, ``3.2`` → ``"3.2 s"``, ``3725`` → ``"1 h 2 min"``."""
    if not math.isfinite(seconds):
        return "unknown"
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days} d {hours} h" if hours else f"{days} d"


def parse_bytes(text: str) -> int:
    """``"8GiB"``, ``"8 GB"``, ``"512m"``, ``"1.5g"`` or plain bytes → bytes.

    A unit with an ``i`` or without a ``b`` is binary (as ``docker --memory`` and llama.cpp read it); ``GB`` is 10^9.

    Raises:
        ValueError: the text is not a size.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a size; write it as 8GiB, 512MiB or a number of bytes")
    number, prefix, binary = match.groups()
    power = " kmgtp".index(prefix.lower()) if prefix else 0
    decimal = prefix and not binary and text.strip().lower().endswith("b")
    base = 1000.0 if decimal else 1024.0
    return round(float(number) * base**power)
