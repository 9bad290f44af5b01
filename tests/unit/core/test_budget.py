"""What may be used where."""

from __future__ import annotations

from localllm.core.budget import budget_of, usable_gpus
from localllm.core.memory import DeviceEstimate, MemoryEstimate
from localllm.core.units import GIB, MIB
from tests.support.plain_machine import machine


def estimate(cpu: int, gpu: int) -> MemoryEstimate:
    return MemoryEstimate(
        (DeviceEstimate(device_id="cpu", weights=cpu), DeviceEstimate(device_id="gpu0", weights=gpu))
    )


def test_a_budget_is_free_less_margin() -> None:
    budget = budget_of(machine(16, 8))
    assert budget.of("cpu") == 16 * GIB
    assert budget.of("gpu0") == 8 * GIB - 400 * MIB
    assert budget.of("absent") == 0


def test_the_ledger_replaces_a_reading_and_cannot_go_below_nothing() -> None:
    budget = budget_of(machine(16, 8), {"gpu0": 5, "cpu": -3})
    assert (budget.of("gpu0"), budget.of("cpu")) == (5, 0)


def test_the_worst_shortage_is_named() -> None:
    budget = budget_of(machine(1, 1), {"cpu": 100, "gpu0": 100})
    assert budget.fits(estimate(100, 100))
    shortage = budget.shortage(estimate(150, 300))
    assert shortage is not None
    assert (shortage.device_id, shortage.missing_bytes) == ("gpu0", 200)


def test_unified_memory_counts_for_the_host_too() -> None:
    budget = budget_of(machine(1, 1, unified=True), {"cpu": 100, "gpu0": 100})
    assert budget.fits(estimate(40, 60))
    shortage = budget.shortage(estimate(50, 60))
    assert shortage is not None
    assert (shortage.device_id, shortage.needed_bytes) == ("cpu", 110)


def test_what_stays_free() -> None:
    budget = budget_of(machine(1, 1), {"cpu": 100, "gpu0": 200})
    assert budget.spare_share(estimate(0, 150)) == 0.25
    assert budget.spare_share(estimate(90, 150)) == 1 - 90 / 100


def test_a_gpu_without_room_is_not_usable() -> None:
    where = machine(16, 8, 8)
    assert [gpu.id for gpu in usable_gpus(where, budget_of(where, {"gpu0": 0}))] == ["gpu1"]
