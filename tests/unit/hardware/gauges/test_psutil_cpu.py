from __future__ import annotations

from localllm.core.machine import Device, DeviceKind
from localllm.hardware.gauges.psutil_cpu import PsutilCpuGauge

CPU = Device(id="cpu", kind=DeviceKind.CPU, name="CPU", total_bytes=None, free_bytes=None, margin_bytes=0)


def test_memory_at_once_and_load_from_the_second_reading_on() -> None:
    gauge = PsutilCpuGauge(CPU)
    first, second = gauge.read(), gauge.read()
    assert first.utilisation_percent is None
    assert 0 <= (second.utilisation_percent or 0) <= 100
    assert 0 < (first.memory_used_bytes or 0) < (first.memory_total_bytes or 0)
    gauge.close()
