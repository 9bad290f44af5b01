"""The processor and its RAM, live, on macOS and Windows: psutil reads what there is."""

from __future__ import annotations

import psutil

from localllm.core.machine import Device, DeviceKind, DeviceSample


class PsutilCpuGauge:
    """Memory and load; neither system tells temperatures or clocks without special rights."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._primed = False

    def read(self) -> DeviceSample:
        memory = psutil.virtual_memory()
        busy = psutil.cpu_percent(interval=None)
        utilisation = busy if self._primed else None  # the first figure has no interval to be about
        self._primed = True
        return DeviceSample(
            id=self._device.id,
            name=self._device.name,
            kind=DeviceKind.CPU,
            memory_total_bytes=memory.total,
            memory_used_bytes=max(0, memory.total - memory.available),
            utilisation_percent=utilisation,
        )

    def close(self) -> None:
        """Nothing is held open."""
