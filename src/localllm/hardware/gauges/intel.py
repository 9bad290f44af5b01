"""Intel GPUs, live, from the files of xe and i915 in sysfs. Neither tells how much memory is in use."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from localllm.core.machine import Device, DeviceSample
from localllm.hardware.gauges.base import Rate, hwmon_folder, read_celsius, read_scaled, read_text
from localllm.hardware.parsing import to_int


class IntelGauge:
    """One card under its sysfs folder (``/sys/class/drm/card0``).

    Load is the time not spent asleep: 1 − growth of the idle counter, which is what the kernel keeps for all engines
    together.
    """

    def __init__(
        self, device: Device, *, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._device = device
        card = root / (device.address or "").lstrip("/")
        self._hwmon = hwmon_folder(card / "device")
        self._xe = card / "device/tile0/gt0"
        self._i915 = card / "gt/gt0"
        self._card = card
        self._idle_ms = Rate(clock)
        self._energy_uj = Rate(clock)

    def read(self) -> DeviceSample:
        idle = self._idle_ms.update(
            _first_int(
                self._xe / "gtidle/idle_residency_ms",
                self._i915 / "rc6_residency_ms",
                self._card / "power/rc6_residency_ms",
            )
        )
        watts = self._energy_uj.update(to_int(read_text(self._sensor("energy1_input"))))
        clock = _first_int(
            self._xe / "freq0/act_freq", self._i915 / "rps_act_freq_mhz", self._card / "gt_act_freq_mhz"
        )
        return DeviceSample(
            id=self._device.id,
            name=self._device.name,
            kind=self._device.kind,
            memory_total_bytes=self._device.total_bytes,
            utilisation_percent=None if idle is None else round(min(100.0, max(0.0, 100 - idle / 10)), 1),
            temperature_celsius=self._temperature(),
            power_watts=None if watts is None else round(watts / 1e6, 1),
            clock_mhz=None if clock is None else float(clock),
            throttled=self._throttled(),
        )

    def close(self) -> None:
        """Nothing is held open."""

    def _sensor(self, name: str) -> Path | None:
        return None if self._hwmon is None else self._hwmon / name

    def _temperature(self) -> float | None:
        """xe labels its sensors from 2 up (package, then memory); i915 has one."""
        for name in ("temp2_input", "temp1_input"):
            celsius = read_celsius(self._sensor(name))
            if celsius is not None:
                return celsius
        return None

    def _throttled(self) -> str | None:
        """xe's reasons where it lists them; else each ``reason_*`` (xe) or ``throttle_reason_*`` (i915) file that is 1."""
        reasons = read_text(self._xe / "freq0/throttle/reasons")
        if reasons is not None:
            return "" if reasons == "none" else reasons.replace("_", " ")
        for folder, prefix in ((self._xe / "freq0/throttle", "reason_"), (self._i915, "throttle_reason_")):
            status = "status" if prefix == "reason_" else "throttle_reason_status"
            on = read_scaled(folder / status, 1, low=0, high=1)
            if on is not None:
                files = sorted(folder.glob(f"{prefix}*")) if on else []
                words = [file.name.removeprefix(prefix) for file in files if read_text(file) == "1"]
                named = ", ".join(word.replace("_", " ") for word in words if word != "status")
                return named or ("throttled" if on else "")
        return None


def _first_int(*files: Path) -> int | None:
    return next(
        (number for number in (to_int(read_text(file)) for file in files) if number is not None), None
    )
