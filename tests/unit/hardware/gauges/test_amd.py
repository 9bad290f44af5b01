from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.hardware.gauges.amd import AmdGauge, throttle_words
from tests.unit.hardware.gauges.tree import gpu, plant

CARD = "sys/class/drm/card0/device"


def test_a_card_under_load(tmp_path: Path) -> None:
    files = {
        f"{CARD}/mem_info_vram_total": "1000",
        f"{CARD}/mem_info_vram_used": "250",
        f"{CARD}/gpu_busy_percent": "87",
        f"{CARD}/hwmon/hwmon5/temp1_input": "64000",
        f"{CARD}/hwmon/hwmon5/power1_average": "287000000",
        f"{CARD}/pp_dpm_sclk": "0: 500Mhz\n1: 2482Mhz *",
    }
    sample = AmdGauge(gpu("AMD"), root=plant(tmp_path, files)).read()
    assert (sample.memory_total_bytes, sample.memory_used_bytes) == (1000, 250)
    assert (sample.utilisation_percent, sample.temperature_celsius) == (87, 64)
    assert (sample.power_watts, sample.clock_mhz, sample.throttled) == (287.0, 2482, None)


def test_newer_firmware_names_its_sensors_otherwise(tmp_path: Path) -> None:
    files = {
        f"{CARD}/hwmon/hwmon5/power1_input": "45500000",
        f"{CARD}/hwmon/hwmon5/freq1_input": "2100000000",
    }
    sample = AmdGauge(gpu("AMD"), root=plant(tmp_path, files)).read()
    assert (sample.power_watts, sample.clock_mhz) == (45.5, 2100)


@pytest.mark.parametrize(("available_kb", "used"), [(2, 150), (0, 1050)])
def test_an_apu_counts_what_the_host_took_of_its_memory(tmp_path: Path, available_kb: int, used: int) -> None:
    files = {
        f"{CARD}/mem_info_vram_total": "100",
        f"{CARD}/mem_info_vram_used": "50",
        f"{CARD}/mem_info_gtt_total": "1000",
        f"{CARD}/mem_info_gtt_used": "100",
        "proc/meminfo": f"MemAvailable: {available_kb} kB",
    }
    sample = AmdGauge(gpu("AMD", unified=True, total_bytes=1100), root=plant(tmp_path, files)).read()
    assert (sample.memory_total_bytes, sample.memory_used_bytes) == (1100, used)


def test_a_card_that_is_gone_reads_as_unknown(tmp_path: Path) -> None:
    sample = AmdGauge(gpu("AMD"), root=tmp_path).read()
    assert (sample.memory_used_bytes, sample.utilisation_percent, sample.power_watts) == (None, None, None)


def metrics(revision: tuple[int, int], size: int, status: int) -> bytes:
    """A gpu_metrics table whose last eight bytes are the throttle status."""
    header = size.to_bytes(2, "little") + bytes(revision)
    return header + bytes(size - 12) + status.to_bytes(8, "little")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, ""),
        (1 << 0, "power limit"),
        (1 << 36, "temperature"),
        (1 << 7 | 1 << 22 | 1 << 47, "power limit, current limit, temperature"),
        ((1 << 64) - 1, None),
    ],
)
def test_why_the_clocks_are_held_down(tmp_path: Path, status: int, words: str | None) -> None:
    assert throttle_words(metrics((1, 3), 120, status)) == words
    assert throttle_words(metrics((2, 2), 128, status)) == words
    path = plant(tmp_path, {f"{CARD}/gpu_busy_percent": "1"}) / CARD / "gpu_metrics"
    path.write_bytes(metrics((1, 3), 120, status))
    assert AmdGauge(gpu("AMD"), root=tmp_path).read().throttled == words


def test_a_table_of_another_kind_tells_nothing() -> None:
    assert throttle_words(metrics((1, 4), 264, 1)) is None
    assert throttle_words(metrics((1, 3), 120, 1)[:100]) is None


@given(st.binary(max_size=300))
def test_any_bytes_are_a_table_or_none(data: bytes) -> None:
    words = throttle_words(data)
    assert words is None or isinstance(words, str)
