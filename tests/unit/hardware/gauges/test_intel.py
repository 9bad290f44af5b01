from __future__ import annotations

from pathlib import Path

import pytest

from localllm.hardware.gauges.intel import IntelGauge
from tests.unit.hardware.gauges.tree import gpu, plant

CARD = "sys/class/drm/card0"
XE = f"{CARD}/device/tile0/gt0"


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_load_and_power_of_an_xe_card_come_from_counters(tmp_path: Path) -> None:
    clock = Clock()
    hwmon = f"{CARD}/device/hwmon/hwmon2"
    files = {
        f"{XE}/gtidle/idle_residency_ms": "5000",
        f"{XE}/freq0/act_freq": "2400",
        f"{hwmon}/energy1_input": "1000000",
        f"{hwmon}/temp2_input": "55000",
        f"{hwmon}/temp3_input": "99000",
    }
    gauge = IntelGauge(gpu("Intel"), root=plant(tmp_path, files), clock=clock)
    first = gauge.read()
    assert (first.utilisation_percent, first.power_watts) == (None, None)
    clock.now += 2.0
    plant(tmp_path, {f"{XE}/gtidle/idle_residency_ms": "5500", f"{hwmon}/energy1_input": "121000000"})
    second = gauge.read()
    assert second.utilisation_percent == 75.0  # asleep for 0.5 of 2 s
    assert (second.power_watts, second.temperature_celsius, second.clock_mhz) == (60.0, 55, 2400)
    assert second.memory_used_bytes is None


def test_i915_has_the_same_figures_in_other_places(tmp_path: Path) -> None:
    clock = Clock()
    files = {f"{CARD}/gt/gt0/rc6_residency_ms": "0", f"{CARD}/gt/gt0/rps_act_freq_mhz": "1950"}
    gauge = IntelGauge(gpu("Intel"), root=plant(tmp_path, files), clock=clock)
    assert gauge.read().clock_mhz == 1950
    clock.now += 1.0
    assert gauge.read().utilisation_percent == 100.0


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({}, None),
        ({f"{XE}/freq0/throttle/reasons": "none"}, ""),
        ({f"{XE}/freq0/throttle/reasons": "pl1 thermal"}, "pl1 thermal"),
        ({f"{XE}/freq0/throttle/status": "0", f"{XE}/freq0/throttle/reason_thermal": "0"}, ""),
        ({f"{XE}/freq0/throttle/status": "1", f"{XE}/freq0/throttle/reason_thermal": "1"}, "thermal"),
        ({f"{CARD}/gt/gt0/throttle_reason_status": "1", f"{CARD}/gt/gt0/throttle_reason_pl1": "1"}, "pl1"),
        ({f"{CARD}/gt/gt0/throttle_reason_status": "1"}, "throttled"),
    ],
)
def test_why_the_clocks_are_held_down(tmp_path: Path, files: dict[str, str], words: str | None) -> None:
    assert IntelGauge(gpu("Intel"), root=plant(tmp_path, files)).read().throttled == words
