"""Live readings of every device for the monitor: memory, load, temperature, power, clocks, throttling.

Made for one or two readings a second at well under 0.3 % of a core. A driver that stops answering costs one short
wait, then its device reads as unknown until it answers again; the others go on.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from localllm.core.machine import Device, DeviceKind, DeviceSample, Machine
from localllm.hardware.gauges.amd import AmdGauge
from localllm.hardware.gauges.apple import AppleGauge
from localllm.hardware.gauges.base import Gauge
from localllm.hardware.gauges.cpu import LinuxCpuGauge
from localllm.hardware.gauges.intel import IntelGauge
from localllm.hardware.gauges.jetson import JetsonGauge

_PATIENCE_S = 0.25


class Sampler:
    """Reads the devices of ``machine``. ``sample`` may be called from any one thread at a time."""

    def __init__(self, machine: Machine, *, patience_s: float = _PATIENCE_S) -> None:
        self._devices = machine.devices
        self._patience_s = patience_s
        self._gauges: list[Gauge | _Watched | None] = []
        for device in machine.devices:
            gauge = None if machine.simulated else _gauge(device, machine)
            watched = gauge is not None and device.kind is DeviceKind.GPU
            self._gauges.append(_Watched(gauge) if watched and gauge is not None else gauge)

    def sample(self) -> tuple[DeviceSample, ...]:
        """One reading per device, in the machine's order; fields that nobody tells are ``None``."""
        return tuple(
            self._read(device, gauge) for device, gauge in zip(self._devices, self._gauges, strict=True)
        )

    def close(self) -> None:
        """Let go of the drivers. A gauge that hangs is left behind."""
        for gauge in self._gauges:
            if gauge is not None:
                gauge.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, device: Device, gauge: Gauge | _Watched | None) -> DeviceSample:
        found: DeviceSample | None = None
        if isinstance(gauge, _Watched):
            found = gauge.read(self._patience_s)
        elif gauge is not None:
            try:
                found = gauge.read()
            except OSError:
                found = None
        return found or DeviceSample(
            id=device.id, name=device.name, kind=device.kind, memory_total_bytes=device.total_bytes
        )


def _gauge(device: Device, machine: Machine) -> Gauge | None:
    """The gauge of a device. Vendors' libraries are imported only where their devices are."""
    if device.kind is DeviceKind.CPU:
        if machine.system == "Linux":
            return LinuxCpuGauge(device, limit_bytes=machine.memory_limit_bytes)
        from localllm.hardware.gauges.psutil_cpu import PsutilCpuGauge

        return PsutilCpuGauge(device)
    return _gpu_gauge(device)


def _gpu_gauge(device: Device) -> Gauge | None:
    if device.vendor == "NVIDIA" and device.address is not None:
        from localllm.hardware.gauges.nvidia import NvidiaGauge

        return NvidiaGauge(device)
    if device.vendor == "NVIDIA":
        return JetsonGauge(device)
    if device.vendor == "AMD":
        return AmdGauge(device)
    if device.vendor == "Intel":
        return IntelGauge(device)
    return AppleGauge(device) if device.vendor == "Apple" else None


class _Watched:
    """A gauge on a thread of its own: whoever reads it waits only so long."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._asked: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[DeviceSample | None] = queue.SimpleQueue()
        self._open_questions = 0
        self._thread: threading.Thread | None = None

    def read(self, patience_s: float) -> DeviceSample | None:
        """The reading, or ``None`` when it failed, is late, or an earlier one still has not come back."""
        self._start()
        if self._open_questions and not self._collect(0.0):
            return None
        self._asked.put(True)
        self._open_questions += 1
        return self._wait(patience_s)

    def close(self) -> None:
        if self._thread is not None:
            self._asked.put(False)

    def _collect(self, timeout_s: float) -> bool:
        """Drop late answers; whether all have come in."""
        while self._open_questions:
            try:
                self._answered.get(block=timeout_s > 0, timeout=timeout_s or None)
            except queue.Empty:
                return False
            self._open_questions -= 1
        return True

    def _wait(self, patience_s: float) -> DeviceSample | None:
        try:
            found = self._answered.get(timeout=patience_s)
        except queue.Empty:
            return None
        self._open_questions -= 1
        return found

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="gauge", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while self._asked.get():
            self._answered.put(_attempt(self._gauge.read))
        self._gauge.close()


def _attempt(read: Callable[[], DeviceSample]) -> DeviceSample | None:
    try:
        return read()
    except Exception:  # noqa: BLE001 - a driver's surprise must not end the thread that watches it
        return None
