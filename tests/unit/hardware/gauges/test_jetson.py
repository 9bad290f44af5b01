from __future__ import annotations

from pathlib import Path

from localllm.hardware.gauges.jetson import JetsonGauge
from tests.unit.hardware.gauges.tree import gpu, plant


def test_an_orin_under_load(tmp_path: Path) -> None:
    files = {
        "proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 300 kB",
        "sys/devices/platform/bus@0/17000000.gpu/load": "874",
        "sys/class/devfreq/17000000.gpu/cur_freq": "1300500000",
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
        "sys/class/thermal/thermal_zone0/temp": "60000",
        "sys/class/thermal/thermal_zone1/type": "gpu-thermal",
        "sys/class/thermal/thermal_zone1/temp": "52500",
    }
    sample = JetsonGauge(gpu("NVIDIA", unified=True), root=plant(tmp_path, files)).read()
    assert (sample.memory_total_bytes, sample.memory_used_bytes) == (1000 * 1024, 700 * 1024)
    assert (sample.utilisation_percent, sample.clock_mhz, sample.temperature_celsius) == (87.4, 1300.5, 52.5)


def test_nothing_readable_is_unknown(tmp_path: Path) -> None:
    sample = JetsonGauge(gpu("NVIDIA", unified=True), root=tmp_path).read()
    assert (sample.memory_used_bytes, sample.utilisation_percent, sample.clock_mhz) == (None, None, None)
