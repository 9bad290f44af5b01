from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.hardware.asking import LiveAsker, RawAnswers, ReplayAsker
from localllm.hardware.pressure import MemoryPressure, PressureLevel, judge, parse_psi, read_pressure
from tests.support.machines import linux

PSI = "some avg10={some} avg60=0.00 avg300=0.00 total=1\nfull avg10={full} avg60=0.00 avg300=0.00 total=1"
V2 = {
    "/proc/self/mountinfo": "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
    "/proc/self/cgroup": "0::/app",
}


def test_psi_is_read_in_percent() -> None:
    assert parse_psi(PSI.format(some="12.50", full="3.00")) == {"some": 12.5, "full": 3.0}
    assert parse_psi("some avg10=900.00 avg60=0") == {}
    assert parse_psi(None) == {}


@pytest.mark.parametrize(
    ("some", "full", "free", "level"),
    [
        (0.0, 0.0, 0.5, PressureLevel.NORMAL),
        (15.0, 0.0, 0.5, PressureLevel.HIGH),
        (0.0, 0.0, 0.05, PressureLevel.HIGH),
        (60.0, 20.0, 0.5, PressureLevel.CRITICAL),
        (0.0, 0.0, 0.01, PressureLevel.CRITICAL),
        (None, None, 0.5, PressureLevel.NORMAL),
        (None, None, None, None),
    ],
)
def test_levels(
    some: float | None, full: float | None, free: float | None, level: PressureLevel | None
) -> None:
    assert judge(some, full, free) is level


def test_our_cgroup_counts_as_much_as_the_machine() -> None:
    texts = {
        **V2,
        "/proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 900 kB",
        "/proc/pressure/memory": PSI.format(some="0.10", full="0.00"),
        "/sys/fs/cgroup/app/memory.pressure": PSI.format(some="40.00", full="12.00"),
        "/sys/fs/cgroup/app/memory.max": "1000",
        "/sys/fs/cgroup/app/memory.current": "600",
        "/sys/fs/cgroup/app/memory.events": "low 0\nhigh 2\nmax 9\noom 1\noom_kill 1",
    }
    assert read_pressure(linux(texts)) == MemoryPressure(
        level=PressureLevel.CRITICAL, some_percent=40.0, full_percent=12.0, free_share=0.4, oom_kills=1
    )


def test_a_kernel_without_psi_still_tells_what_is_left() -> None:
    found = read_pressure(linux({"/proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 20 kB"}))
    assert found == MemoryPressure(level=PressureLevel.CRITICAL, free_share=0.02)


@pytest.mark.parametrize(
    ("figure", "level"), [("1", "normal"), ("2", "high"), ("4", "critical"), ("x", None)]
)
def test_macos_tells_a_level(figure: str, level: str | None) -> None:
    outputs = {"sysctl pressure": f"kern.memorystatus_vm_pressure_level: {figure}"}
    asker = ReplayAsker(RawAnswers(system="Darwin", architecture="arm64", hostname="m", outputs=outputs))
    assert read_pressure(asker).level == level


def test_windows_tells_nothing() -> None:
    asker = ReplayAsker(RawAnswers(system="Windows", architecture="AMD64", hostname="w"))
    assert read_pressure(asker) == MemoryPressure()


def test_this_machine_has_a_pressure() -> None:
    assert read_pressure(LiveAsker(deadline_s=1)).level in set(PressureLevel)


@given(st.text())
def test_garbage_is_no_pressure(text: str) -> None:
    texts = {
        **V2,
        "/proc/pressure/memory": text,
        "/sys/fs/cgroup/app/memory.events": text,
        "/proc/meminfo": text,
    }
    found = read_pressure(linux(texts))
    assert found.some_percent is None or 0 <= found.some_percent <= 100
