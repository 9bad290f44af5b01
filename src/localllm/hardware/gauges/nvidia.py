"""NVIDIA cards, live, through NVML in this process.

A call can block while a GPU is being lost, so the sampler never calls these on its own thread.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pynvml

from localllm.core.machine import Device, DeviceSample
from localllm.hardware.gauges.base import read_text
from localllm.hardware.parsing import colon_kilobytes

Result = TypeVar("Result")

# nvmlClocksEventReasons: bits that mean "held back", with what a person calls them. Idle clocks are not throttling.
_REASONS = (
    (0x04, "power limit"),
    (0x08, "hardware slowdown"),
    (0x20, "temperature"),
    (0x40, "temperature"),
    (0x80, "power brake"),
)


class NvidiaGauge:
    """One card, found again by its UUID. NVML starts at the first reading and again after it failed as a whole."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._handle: object | None = None

    def read(self) -> DeviceSample:
        handle = self._open()
        total, used = self._memory(handle)
        utilisation = _ask(lambda: float(pynvml.nvmlDeviceGetUtilizationRates(handle).gpu))
        milliwatts = _ask(lambda: float(pynvml.nvmlDeviceGetPowerUsage(handle)))
        reasons = _ask(lambda: int(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)))
        return DeviceSample(
            id=self._device.id,
            name=self._device.name,
            kind=self._device.kind,
            memory_total_bytes=total,
            memory_used_bytes=used,
            utilisation_percent=utilisation,
            temperature_celsius=_ask(
                lambda: float(pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU))
            ),
            power_watts=None if milliwatts is None else round(milliwatts / 1000, 1),
            clock_mhz=_ask(lambda: float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM))),
            throttled=None if reasons is None else throttle_words(reasons),
        )

    def close(self) -> None:
        if self._handle is not None:
            self._handle = None
            _ask(pynvml.nvmlShutdown)

    def _open(self) -> object:
        if self._handle is None:
            try:
                pynvml.nvmlInit()
                self._handle = pynvml.nvmlDeviceGetHandleByUUID((self._device.address or "").encode())
            except pynvml.NVMLError as error:
                raise OSError(str(error)) from error
        return self._handle

    def _memory(self, handle: object) -> tuple[int | None, int | None]:
        if self._device.unified:
            figures = colon_kilobytes(read_text(Path("/proc/meminfo")))
            total, free = figures.get("MemTotal"), figures.get("MemAvailable")
            return total, None if total is None or free is None else max(0, total - free)
        memory = _ask(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
        return (None, None) if memory is None else (int(memory.total), int(memory.used))


def throttle_words(reasons: int) -> str:
    """NVML's reason bits as words; an empty string when nothing holds the clocks back."""
    return ", ".join(dict.fromkeys(word for bit, word in _REASONS if reasons & bit))


def _ask(call: Callable[[], Result]) -> Result | None:
    try:
        return call()
    except pynvml.NVMLError:
        return None
