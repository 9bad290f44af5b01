from __future__ import annotations

import pytest

from localllm.core.units import GIB, MIB
from localllm.hardware.apple import default_working_set_bytes, in_use_bytes
from localllm.hardware.detect import detect
from tests.support import machines


@pytest.mark.parametrize(
    ("ram", "limit_mib"),
    [
        (8, 5461),
        (16, 10922),
        (18, 12288),
        (24, 16384),
        (32, 21845),
        (36, 27648),
        (64, 49152),
        (96, 73728),
        (192, 147456),
    ],
)
def test_the_default_limit_is_what_metal_reports(ram: int, limit_mib: int) -> None:
    """Against recommendedMaxWorkingSetSize in llama.cpp logs of Macs with so many GiB."""
    assert default_working_set_bytes(ram * GIB) // MIB == limit_mib


def test_what_the_driver_uses_itself_is_another_figure() -> None:
    registry = (
        '"PerformanceStatistics" = {"In use system memory (driver)"=7,"In use system memory"=1200357376}'
    )
    assert in_use_bytes(registry) == 1200357376
    assert in_use_bytes('"In use system memory (driver)"=7') is None


def test_memory_that_the_gpu_holds_is_not_free() -> None:
    raw = machines.answers("m3_max")
    raw.outputs["ioreg"] = raw.outputs["ioreg"].replace(
        'system memory"=1073741824', 'system memory"=42949672960'
    )
    assert detect(raw=raw).gpus[0].free_bytes == 8 * GIB


def test_a_limit_above_the_memory_is_not_believed() -> None:
    raw = machines.answers("m3_max")
    raw.outputs["metal"] = '{"recommended_bytes": 99999999999999}'
    assert detect(raw=raw).gpus[0].total_bytes == 48 * GIB  # the default for 64 GiB


def test_without_the_registry_the_chip_still_names_the_gpu() -> None:
    raw = machines.answers("m3_max")
    del raw.outputs["ioreg"]
    gpu = detect(raw=raw).gpus[0]
    assert gpu.name == "Apple M3 Max"
    assert gpu.bandwidth_gb_per_s == 300  # which of the two is unknown, so the smaller


def test_a_mac_with_an_intel_processor_has_no_metal_device_to_plan_on() -> None:
    raw = machines.answers("m3_max")
    raw.architecture = "x86_64"
    assert detect(raw=raw).gpus == ()
