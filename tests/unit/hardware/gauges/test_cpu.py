from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.machine import Device, DeviceKind
from localllm.core.units import GIB
from localllm.hardware.gauges.cpu import LinuxCpuGauge
from tests.unit.hardware.gauges.tree import plant

CPU = Device(id="cpu", kind=DeviceKind.CPU, name="CPU", total_bytes=None, free_bytes=None, margin_bytes=0)
MEMINFO = {"proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 400 kB"}


def gauge(root: Path, files: dict[str, str]) -> LinuxCpuGauge:
    return LinuxCpuGauge(CPU, limit_bytes=None, root=plant(root, files))


def test_memory_in_use_is_what_is_not_available(tmp_path: Path) -> None:
    sample = gauge(tmp_path, MEMINFO).read()
    assert (sample.memory_total_bytes, sample.memory_used_bytes) == (1000 * 1024, 600 * 1024)


def test_load_is_the_busy_share_since_the_last_reading(tmp_path: Path) -> None:
    one = gauge(tmp_path, {**MEMINFO, "proc/stat": "cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3"})
    assert one.read().utilisation_percent is None
    plant(tmp_path, {"proc/stat": "cpu  150 0 100 840 10 0 0 0 0 0\n"})
    assert one.read().utilisation_percent == 50.0  # 100 ticks, 40 idle and 10 waiting for a disk
    assert one.read().utilisation_percent is None  # no time has passed


@pytest.mark.parametrize("stat", ["", "cpu", "cpu a b c d e f g h", "intr 1 2 3 4 5 6 7 8 9"])
def test_a_load_that_cannot_be_read_is_unknown(tmp_path: Path, stat: str) -> None:
    one = gauge(tmp_path, {**MEMINFO, "proc/stat": stat})
    one.read()
    assert one.read().utilisation_percent is None


def test_sensors_by_their_names(tmp_path: Path) -> None:
    files = {
        **MEMINFO,
        "sys/class/hwmon/hwmon0/name": "nvme",
        "sys/class/hwmon/hwmon0/temp1_input": "30000",
        "sys/class/hwmon/hwmon1/name": "k10temp",
        "sys/class/hwmon/hwmon1/temp1_input": "61250",
        "sys/devices/system/cpu/cpufreq/policy0/scaling_cur_freq": "3600000",
        "sys/devices/system/cpu/cpufreq/policy1/scaling_cur_freq": "4200000",
    }
    sample = gauge(tmp_path, files).read()
    assert (sample.temperature_celsius, sample.clock_mhz) == (61.25, 4200)
    assert (sample.power_watts, sample.throttled) == (None, None)


def test_a_thermal_zone_stands_in_for_a_sensor(tmp_path: Path) -> None:
    files = {
        "sys/class/thermal/thermal_zone0/type": "cpu-thermal",
        "sys/class/thermal/thermal_zone0/temp": "52000",
    }
    assert gauge(tmp_path, {**MEMINFO, **files}).read().temperature_celsius == 52


@pytest.mark.parametrize(
    ("bits", "words"), [("0", ""), ("50005", "under-voltage, throttled"), ("80008", "temperature")]
)
def test_a_raspberry_pi_says_why_it_is_slow(tmp_path: Path, bits: str, words: str) -> None:
    path = "sys/devices/platform/soc/soc:firmware/get_throttled"
    assert gauge(tmp_path, {**MEMINFO, path: bits}).read().throttled == words


def test_a_throttle_count_that_grows_is_heat(tmp_path: Path) -> None:
    path = "sys/devices/system/cpu/cpu0/thermal_throttle/package_throttle_count"
    one = gauge(tmp_path, {**MEMINFO, path: "5"})
    assert one.read().throttled is None
    assert one.read().throttled == ""
    plant(tmp_path, {path: "6"})
    assert one.read().throttled == "temperature"


def test_power_from_the_energy_counter(tmp_path: Path) -> None:
    path = "sys/class/powercap/intel-rapl:0/energy_uj"
    one = gauge(tmp_path, {**MEMINFO, path: "1000000"})
    assert one.read().power_watts is None
    plant(tmp_path, {path: "9000000000"})
    assert (one.read().power_watts or 0) > 0


def test_a_limit_is_the_total_that_counts(tmp_path: Path) -> None:
    plant(tmp_path, {"proc/meminfo": f"MemTotal: {64 * GIB // 1024} kB\nMemAvailable: {1 * GIB // 1024} kB"})
    sample = LinuxCpuGauge(CPU, limit_bytes=4 * GIB, root=tmp_path).read()
    assert sample.memory_total_bytes == 4 * GIB
    assert (sample.memory_used_bytes or 0) >= 3 * GIB


def test_an_empty_tree_is_all_unknown(tmp_path: Path) -> None:
    sample = gauge(tmp_path, {}).read()
    assert (sample.memory_total_bytes, sample.memory_used_bytes, sample.clock_mhz) == (None, None, None)
