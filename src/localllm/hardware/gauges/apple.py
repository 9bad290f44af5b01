"""The GPU of Apple silicon, live, from the I/O registry: the one source that needs no special rights."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable

from localllm.core.machine import Device, DeviceSample
from localllm.hardware.apple import IOREG, in_use_bytes
from localllm.hardware.asking import run_bounded

_LOAD = re.compile(r'"Device Utilization %"=(\d{1,3})', re.ASCII)
# One run of ioreg takes some 15 ms of a core; more often would cost more than the sampler may.
_INTERVAL_S = 5.0


class AppleGauge:
    """Memory and load, renewed every few seconds; in between the last reading stands."""

    def __init__(
        self, device: Device, *, ask: Callable[[], str | None] | None = None, interval_s: float = _INTERVAL_S
    ) -> None:
        self._device = device
        self._ask = ask or _ioreg
        self._interval_s = interval_s
        self._taken: tuple[float, str] | None = None

    def read(self) -> DeviceSample:
        now = time.monotonic()
        if self._taken is None or now - self._taken[0] >= self._interval_s:
            self._taken = (now, self._ask() or "")
        registry = self._taken[1]
        load = _LOAD.search(registry)
        percent = int(load.group(1)) if load else None
        return DeviceSample(
            id=self._device.id,
            name=self._device.name,
            kind=self._device.kind,
            memory_total_bytes=self._device.total_bytes,
            memory_used_bytes=in_use_bytes(registry),
            utilisation_percent=None if percent is None or percent > 100 else float(percent),
        )

    def close(self) -> None:
        """Nothing is held open."""


def _ioreg() -> str | None:
    try:
        return run_bounded(IOREG, timeout_s=1.0)
    except (OSError, subprocess.SubprocessError):
        return None
