"""AMD GPUs, live, from amdgpu's files in sysfs."""

from __future__ import annotations

import re
from pathlib import Path

from localllm.core.machine import Device, DeviceSample
from localllm.hardware.gauges.base import hwmon_folder, read_celsius, read_scaled, read_text
from localllm.hardware.parsing import colon_kilobytes, to_bytes, to_int

# The line that is in force: "1: 2482Mhz *".
_CURRENT_CLOCK = re.compile(r"^\d+:\s*(\d{1,5})\s*mhz\s*\*", re.MULTILINE | re.IGNORECASE | re.ASCII)


# Where ``indep_throttle_status`` lies in gpu_metrics, by (format, content) revision: kgd_pp_interface.h.
_STATUS_OFFSETS = {(1, 3): 112, (2, 2): 120, (2, 3): 120, (2, 4): 120}
# Its bits come in groups of sixteen (SMU_THROTTLER_* in amdgpu_smu.h).
_REASONS = ((0, "power limit"), (16, "current limit"), (32, "temperature"), (48, "reliability limit"))
_NOT_TOLD = (1 << 64) - 1


class AmdGauge:
    """One card under its sysfs folder (``/sys/class/drm/card0``)."""

    def __init__(self, device: Device, *, root: Path = Path("/")) -> None:
        self._device = device
        self._root = root
        self._folder = root / (device.address or "").lstrip("/") / "device"
        self._hwmon = hwmon_folder(self._folder)

    def read(self) -> DeviceSample:
        total, used = self._shared() if self._device.unified else self._own()
        return DeviceSample(
            id=self._device.id,
            name=self._device.name,
            kind=self._device.kind,
            memory_total_bytes=total,
            memory_used_bytes=used,
            utilisation_percent=read_scaled(self._folder / "gpu_busy_percent", 1, low=0, high=100),
            temperature_celsius=read_celsius(self._sensor("temp1_input")),
            power_watts=self._watts(),
            clock_mhz=self._clock(),
            throttled=self._throttled(),
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _own(self) -> tuple[int | None, int | None]:
        return self._bytes("vram_total"), self._bytes("vram_used")

    def _shared(self) -> tuple[int | None, int | None]:
        """An APU's carve-out and GTT together; GTT that the host itself has taken counts as used."""
        total, used = self._device.total_bytes, self._bytes("vram_used")
        gtt_total, gtt_used = self._bytes("gtt_total"), self._bytes("gtt_used")
        if total is None or used is None or gtt_total is None or gtt_used is None:
            return total, None
        available = colon_kilobytes(read_text(self._root / "proc/meminfo")).get("MemAvailable", gtt_total)
        return total, used + max(gtt_used, gtt_total - available)

    def _bytes(self, name: str) -> int | None:
        return to_bytes(read_text(self._folder / f"mem_info_{name}"))

    def _sensor(self, name: str) -> Path | None:
        return None if self._hwmon is None else self._hwmon / name

    def _watts(self) -> float | None:
        """Microwatts: ``power1_average``, or ``power1_input`` on newer firmware."""
        for name in ("power1_average", "power1_input"):
            watts = read_scaled(self._sensor(name), 1e6, low=0, high=5000)
            if watts is not None:
                return round(watts, 1)
        return None

    def _throttled(self) -> str | None:
        try:
            return throttle_words((self._folder / "gpu_metrics").read_bytes())
        except OSError:
            return None

    def _clock(self) -> float | None:
        hertz = read_scaled(self._sensor("freq1_input"), 1e6, low=1, high=10_000)
        if hertz is not None:
            return hertz
        match = _CURRENT_CLOCK.search(read_text(self._folder / "pp_dpm_sclk") or "")
        number = to_int(match.group(1)) if match else None
        return None if number is None else float(number)


def throttle_words(metrics: bytes) -> str | None:
    """What holds a card's clocks down, from the binary file ``gpu_metrics``; ``None`` for tables not known here."""
    if len(metrics) < 4:
        return None
    offset = _STATUS_OFFSETS.get((metrics[2], metrics[3]))
    if offset is None or len(metrics) < offset + 8:
        return None
    status = int.from_bytes(metrics[offset : offset + 8], "little")
    if status == _NOT_TOLD:
        return None
    return ", ".join(word for shift, word in _REASONS if status >> shift & 0xFFFF)
