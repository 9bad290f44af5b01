"""The processor and its RAM on Linux, live, from /proc and /sys."""

from __future__ import annotations

from pathlib import Path

from localllm.core.machine import Device, DeviceKind, DeviceSample
from localllm.hardware.asking import LiveAsker
from localllm.hardware.cgroup import cgroup_limits
from localllm.hardware.gauges.base import Rate, read_celsius, read_scaled, read_text
from localllm.hardware.parsing import colon_kilobytes, to_int

_SENSORS = ("k10temp", "zenpower", "coretemp", "cpu_thermal", "soc_thermal", "scpi_sensors")
_ZONES = ("x86_pkg_temp", "cpu-thermal", "cpu_thermal", "CPU-therm", "soc-thermal", "bigcore0-thermal")
# Reading a CPU's frequency costs tens of microseconds; eight of a hundred cores tell enough.
_MOST_CLOCKS = 8
# Bits of the Raspberry Pi firmware's get_throttled that describe now (the higher ones: since boot).
_PI_THROTTLE = ((0x1, "under-voltage"), (0x2, "frequency cap"), (0x4, "throttled"), (0x8, "temperature"))


class LinuxCpuGauge:
    """Reads /proc and /sys under ``root``. ``limit_bytes`` is the cgroup limit that detection found."""

    def __init__(self, device: Device, *, limit_bytes: int | None, root: Path = Path("/")) -> None:
        self._device = device
        self._limit_bytes = limit_bytes
        self._proc, self._sys = root / "proc", root / "sys"
        self._temperature = _temperature_file(self._sys)
        clocks = sorted(self._sys.glob("devices/system/cpu/cpufreq/policy*/scaling_cur_freq"))
        self._clocks = clocks[:: max(1, len(clocks) // _MOST_CLOCKS)]
        self._energy_uj = Rate()
        self._throttle_events = Rate()
        self._ticks: tuple[int, int] | None = None

    def read(self) -> DeviceSample:
        total, used = self._memory()
        clocks = [read_scaled(path, 1000, low=1, high=20_000) for path in self._clocks]
        watts = self._energy_uj.update(to_int(read_text(self._sys / "class/powercap/intel-rapl:0/energy_uj")))
        return DeviceSample(
            id=self._device.id,
            name=self._device.name,
            kind=DeviceKind.CPU,
            memory_total_bytes=total,
            memory_used_bytes=used,
            utilisation_percent=self._utilisation(),
            temperature_celsius=read_celsius(self._temperature),
            power_watts=None if watts is None else round(watts / 1e6, 1),
            clock_mhz=max((clock for clock in clocks if clock is not None), default=None),
            throttled=self._throttled(),
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _memory(self) -> tuple[int | None, int | None]:
        figures = colon_kilobytes(read_text(self._proc / "meminfo"))
        total, free = figures.get("MemTotal"), figures.get("MemAvailable")
        if self._limit_bytes is not None:
            room = cgroup_limits(LiveAsker(deadline_s=1.0)).room_bytes
            total = self._limit_bytes
            free = min((value for value in (free, room) if value is not None), default=None)
        if total is None or free is None:
            return total, None
        return total, max(0, total - free)

    def _utilisation(self) -> float | None:
        """Busy share of all CPUs since the last reading; iowait is idle. Fields: proc(5), ``/proc/stat``."""
        line = (read_text(self._proc / "stat") or "").partition("\n")[0].split()
        ticks = [to_int(field) for field in line[1:9]]
        if len(ticks) < 5 or None in ticks:
            return None
        numbers = [tick for tick in ticks if tick is not None]
        total, idle = sum(numbers), numbers[3] + numbers[4]
        last, self._ticks = self._ticks, (total, idle)
        if last is None or total <= last[0]:
            return None
        busy = 1 - (idle - last[1]) / (total - last[0])
        return round(min(1.0, max(0.0, busy)) * 100, 1)

    def _throttled(self) -> str | None:
        pi = to_int(read_text(self._sys / "devices/platform/soc/soc:firmware/get_throttled"), base=16)
        if pi is not None:
            return ", ".join(word for bit, word in _PI_THROTTLE if pi & bit)
        count = read_text(self._sys / "devices/system/cpu/cpu0/thermal_throttle/package_throttle_count")
        events = self._throttle_events.update(to_int(count))
        return None if events is None else "temperature" if events > 0 else ""


def _temperature_file(sys: Path) -> Path | None:
    for hwmon in sorted(sys.glob("class/hwmon/hwmon*")):
        if read_text(hwmon / "name") in _SENSORS and (hwmon / "temp1_input").is_file():
            return hwmon / "temp1_input"
    for zone in sorted(sys.glob("class/thermal/thermal_zone*")):
        if read_text(zone / "type") in _ZONES:
            return zone / "temp"
    return None
