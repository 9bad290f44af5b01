from __future__ import annotations

from pathlib import Path

from localllm.hardware.gauges.base import Rate, hwmon_folder, read_celsius, read_scaled, read_text
from tests.unit.hardware.gauges.tree import plant


def test_files_that_are_missing_or_absurd_are_unknown(tmp_path: Path) -> None:
    plant(tmp_path, {"t": "45500\n", "cold": "-300000", "word": "hot"})
    assert read_celsius(tmp_path / "t") == 45.5
    assert read_celsius(tmp_path / "cold") is None
    assert read_celsius(tmp_path / "word") is None
    assert read_celsius(tmp_path / "missing") is None
    assert read_scaled(None, 1, low=0, high=1) is None
    assert read_text(tmp_path) is None


def test_a_rate_needs_two_readings_and_a_counter_that_grows() -> None:
    now = iter([10.0, 12.0, 13.0, 14.0, 15.0])
    rate = Rate(lambda: next(now))
    assert rate.update(100) is None
    assert rate.update(300) == 100
    assert rate.update(50) is None  # the counter was reset
    assert rate.update(None) is None
    assert rate.update(60) is None


def test_the_first_hwmon_folder(tmp_path: Path) -> None:
    plant(tmp_path, {"hwmon/hwmon3/name": "amdgpu", "hwmon/hwmon4/name": "x"})
    assert hwmon_folder(tmp_path) == tmp_path / "hwmon/hwmon3"
    assert hwmon_folder(tmp_path / "none") is None
