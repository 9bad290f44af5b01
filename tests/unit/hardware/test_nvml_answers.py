from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import msgspec
import pytest

from localllm.hardware.nvml_answers import NvmlAnswers, NvmlProcess, ask_nvml


class FakeNvml:
    """pynvml as far as it is asked: one healthy card and one that was lost."""

    NVML_CLOCK_MEM = 2

    class NVMLError(Exception):
        pass

    def __init__(self, *, fails: str | None = None) -> None:
        self._fails = fails

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} is not part of the fake")

    def nvmlInit(self) -> None:  # noqa: N802
        if self._fails:
            raise self.NVMLError(self._fails)

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"570.86.10"

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802
        if index == 1:
            raise self.NVMLError("GPU is lost")
        return "handle"

    def nvmlDeviceGetMemoryInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=100, free=60, used=40)

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> tuple[int, int]:  # noqa: N802
        return (8, 6)

    def nvmlDeviceGetComputeRunningProcesses(self, handle: str) -> list[SimpleNamespace]:  # noqa: N802
        return [SimpleNamespace(pid=7, usedGpuMemory=30)]

    def nvmlDeviceGetGraphicsRunningProcesses(self, handle: str) -> list[SimpleNamespace]:  # noqa: N802
        raise self.NVMLError("Not Supported")

    def nvmlSystemGetProcessName(self, pid: int) -> str:  # noqa: N802
        return "/usr/bin/python3"

    def nvmlDeviceGetName(self, handle: str) -> str:  # noqa: N802
        return "NVIDIA GeForce RTX 3090"

    def nvmlDeviceGetUUID(self, handle: str) -> str:  # noqa: N802
        return "GPU-1"

    def nvmlDeviceGetPciInfo(self, handle: str) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=b"00000000:01:00.0")

    def nvmlDeviceGetMemoryBusWidth(self, handle: str) -> int:  # noqa: N802
        return 384

    def nvmlDeviceGetMaxClockInfo(self, handle: str, kind: int) -> int:  # noqa: N802
        return 9751

    def nvmlDeviceGetDisplayActive(self, handle: str) -> int:  # noqa: N802
        return 0

    def nvmlDeviceGetMigMode(self, handle: str) -> list[int]:  # noqa: N802
        raise self.NVMLError("Not Supported")


def test_a_card_is_described_and_a_lost_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    answers = ask_nvml()
    assert (answers.driver, answers.error) == ("570.86.10", None)
    healthy, lost = answers.devices
    assert (healthy.total_bytes, healthy.free_bytes, healthy.bus_width_bits) == (100, 60, 384)
    assert healthy.compute_capability == (8, 6)
    assert healthy.pci_bus_id == "00000000:01:00.0"
    assert healthy.processes == (NvmlProcess(pid=7, bytes=30, name="/usr/bin/python3"),)
    assert healthy.errors == {"processes": "Not Supported", "mig_mode": "Not Supported"}
    assert lost.errors == {"handle": "GPU is lost"}


def test_a_driver_that_does_not_start_is_an_error_not_an_exception(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml(fails="Driver Not Loaded"))
    assert ask_nvml() == NvmlAnswers(error="Driver Not Loaded")


def test_the_program_prints_what_the_probe_reads() -> None:
    printed = subprocess.run(
        [sys.executable, "-m", "localllm.hardware.nvml_answers"], capture_output=True, check=True, timeout=30
    ).stdout
    answers = msgspec.json.decode(printed, type=NvmlAnswers)
    assert answers.error is not None or answers.driver is not None
