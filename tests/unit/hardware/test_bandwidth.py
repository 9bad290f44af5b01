from __future__ import annotations

import ctypes
import time

import pytest

from localllm.core.errors import ProbeFailed
from localllm.core.units import MIB
from localllm.hardware.bandwidth import measure_bandwidth


def test_the_figures_are_those_of_memory_and_come_quickly() -> None:
    """No computer of today copies slower than 0.2 GB/s, none faster than 5 TB/s; a wrong unit would show."""
    began = time.monotonic()
    found = measure_bandwidth(threads=1, working_set_bytes=32 * MIB)
    assert time.monotonic() - began < 2
    assert 0.2 < found.copy_gb_per_s < 5000
    assert 0.2 < found.read_gb_per_s < 5000
    assert found.threads == 1
    assert found.gb_per_s == max(found.copy_gb_per_s, found.read_gb_per_s)


def test_several_threads_work_together() -> None:
    assert measure_bandwidth(threads=3, working_set_bytes=12 * MIB).threads == 3


def test_without_a_c_library_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str | None) -> object:
        raise OSError("no C library")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    with pytest.raises(ProbeFailed, match="no C library"):
        measure_bandwidth(threads=1)
