"""What a gauge is, and the few ways in which all of them read kernel files."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from localllm.core.machine import DeviceSample
from localllm.hardware.parsing import to_int


class Gauge(Protocol):
    """Reads one device, cheaply enough for twice a second. What it cannot tell is ``None``; it may raise OSError."""

    def read(self) -> DeviceSample: ...

    def close(self) -> None: ...


def read_text(path: Path | None) -> str | None:
    """A small kernel file, or ``None``."""
    if path is None:
        return None
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def read_scaled(path: Path | None, divisor: float, *, low: float, high: float) -> float | None:
    """A number in a kernel file divided by ``divisor``, if plausible."""
    number = to_int(read_text(path))
    if number is None:
        return None
    value = number / divisor
    return value if low <= value <= high else None


def read_celsius(path: Path | None) -> float | None:
    """A hwmon or thermal zone temperature, which the kernel gives in millidegrees."""
    return read_scaled(path, 1000, low=-40, high=200)


class Rate:
    """The growth of a counter per second between two readings."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last: tuple[float, int] | None = None

    def update(self, counter: int | None) -> float | None:
        """Growth per second since the last call; ``None`` at first, without a counter, or when it went back."""
        now = self._clock()
        last, self._last = self._last, None if counter is None else (now, counter)
        if last is None or counter is None or counter < last[1] or now <= last[0]:
            return None
        return (counter - last[1]) / (now - last[0])


def hwmon_folder(device: Path) -> Path | None:
    """The first hwmon folder of a device's sysfs folder."""
    return next(iter(sorted(device.glob("hwmon/hwmon*"))), None)
