from __future__ import annotations

import pytest

from localllm.core.units import GIB, MIB
from localllm.hardware.asking import RawAnswers, ReplayAsker
from localllm.hardware.evidence import EvidenceBook
from localllm.hardware.memory import HostMemory, host_margin_bytes, host_memory
from tests.support.machines import linux


def read(asker: ReplayAsker) -> HostMemory:
    return host_memory(asker, EvidenceBook())


def test_linux_trusts_mem_available() -> None:
    memory = read(linux({"/proc/meminfo": "MemTotal: 1000 kB\nMemFree: 10 kB\nMemAvailable: 600 kB"}))
    assert memory == HostMemory(1000 * 1024, 600 * 1024)


def test_an_old_kernel_without_mem_available_is_estimated_low() -> None:
    memory = read(linux({"/proc/meminfo": "MemTotal: 1000 kB\nMemFree: 100 kB\nCached: 400 kB"}))
    assert memory.available_bytes == 300 * 1024


def test_more_available_than_there_is_is_not_believed() -> None:
    memory = read(linux({"/proc/meminfo": "MemTotal: 1000 kB\nMemAvailable: 2000 kB"}))
    assert memory == HostMemory(1000 * 1024, None)


def test_nothing_readable_is_unknown() -> None:
    assert read(linux({})) == HostMemory(None, None)


def test_macos_counts_the_pages_it_can_give_away() -> None:
    outputs = {
        "sysctl memory": "hw.memsize: 17179869184",
        "vm_stat": (
            "Mach Virtual Memory Statistics: (page size of 16384 bytes)\nPages free: 100.\nPages active: 900.\n"
            "Pages inactive: 50.\nPages speculative: 5.\nPages purgeable: 1."
        ),
    }
    memory = read(
        ReplayAsker(RawAnswers(system="Darwin", architecture="arm64", hostname="m", outputs=outputs))
    )
    assert memory == HostMemory(16 * GIB, 156 * 16384)


@pytest.mark.parametrize("text", ["", "page size of 16384 bytes", "Pages free: x."])
def test_macos_without_figures_is_unknown(text: str) -> None:
    answers = RawAnswers(system="Darwin", architecture="arm64", hostname="m", outputs={"vm_stat": text})
    assert read(ReplayAsker(answers)) == HostMemory(None, None)


def test_the_margin_grows_with_the_machine_within_bounds() -> None:
    assert host_margin_bytes(4 * GIB) == 384 * MIB
    assert host_margin_bytes(20 * GIB) == GIB
    assert host_margin_bytes(512 * GIB) == 2 * GIB
    assert host_margin_bytes(None) == GIB
