"""The GPU of a Jetson, live, from the files of NVIDIA's Tegra kernel."""

from __future__ import annotations

from pathlib import Path

from localllm.core.machine import Device, DeviceSample
from localllm.hardware.gauges.base import read_celsius, read_scaled, read_text
from localllm.hardware.parsing import colon_kilobytes

_LOAD_FILES = (
    "sys/devices/gpu.0/load",
    "sys/devices/platform/gpu.0/load",
    "sys/devices/platform/17000000.gpu/load",
    "sys/devices/platform/bus@0/17000000.gpu/load",
)


class JetsonGauge:
    """Load in tenths of a percent, devfreq's clock in Hz, the GPU's thermal zone, and the host's memory."""

    def __init__(self, device: Device, *, root: Path = Path("/")) -> None:
        self._device = device
        self._meminfo = root / "proc/meminfo"
        self._load = next((root / name for name in _LOAD_FILES if (root / name).is_file()), None)
        clocks = sorted((root / "sys/class/devfreq").glob("*gpu*/cur_freq"))
        self._clock = next(iter(clocks), None)
        self._zone = next(
            (
                zone / "temp"
                for zone in sorted((root / "sys/class/thermal").glob("thermal_zone*"))
                if (read_text(zone / "type") or "").lower() in ("gpu-thermal", "gpu-therm")
            ),
            None,
        )

    def read(self) -> DeviceSample:
        figures = colon_kilobytes(read_text(self._meminfo))
        total, free = figures.get("MemTotal"), figures.get("MemAvailable")
        return DeviceSample(
            id=self._device.id,
            name=self._device.name,
            kind=self._device.kind,
            memory_total_bytes=total,
            memory_used_bytes=None if total is None or free is None else max(0, total - free),
            utilisation_percent=read_scaled(self._load, 10, low=0, high=100),
            temperature_celsius=read_celsius(self._zone),
            clock_mhz=read_scaled(self._clock, 1e6, low=1, high=10_000),
        )

    def close(self) -> None:
        """Nothing is held open."""
