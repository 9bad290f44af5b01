from __future__ import annotations

import pytest

from localllm.core.errors import HardwareError
from localllm.core.units import GIB, MIB
from localllm.hardware.devices import load_device_table
from localllm.hardware.simulate import simulate


def test_a_card_beside_an_assumed_host() -> None:
    reading = simulate("RTX 4090")
    assert reading.simulated
    (gpu,) = reading.gpus
    assert (gpu.id, gpu.name, gpu.backend) == ("cuda0", "GeForce RTX 4090", "cuda")
    assert (gpu.total_bytes, gpu.free_bytes) == (24 * GIB, 24 * GIB - 512 * MIB)
    assert gpu.bandwidth_gb_per_s == 1008
    assert reading.cpu.total_bytes == 48 * GIB
    assert [entry.note for entry in reading.cpu.evidence if entry.field == "total_bytes"] == ["assumed"]
    assert reading.cpu.bandwidth_gb_per_s is None


def test_a_host_that_is_known_is_not_assumed() -> None:
    reading = simulate("RTX 4090", host_memory_bytes=64 * GIB)
    assert reading.cpu.total_bytes == 64 * GIB
    assert [entry.note for entry in reading.cpu.evidence if entry.field == "total_bytes"] == [None]


@pytest.mark.parametrize("name", ["2x RTX 3090", "2 x rtx 3090", "2× RTX 3090"])
def test_several_cards(name: str) -> None:
    reading = simulate(name)
    assert [gpu.id for gpu in reading.gpus] == ["cuda0", "cuda1"]
    assert reading.cpu.total_bytes == 96 * GIB


def test_another_size_of_the_same_mac() -> None:
    reading = simulate("M3 Max 64GB")
    assert reading.system == "Darwin"
    assert reading.cpu.total_bytes == 64 * GIB
    assert reading.gpus[0].total_bytes == 48 * GIB
    assert reading.gpus[0].unified


def test_unified_memory_is_the_hosts() -> None:
    reading = simulate("DGX Spark")
    assert reading.gpus[0].total_bytes == reading.cpu.total_bytes == 128 * GIB
    assert reading.gpus[0].free_bytes == reading.cpu.free_bytes


def test_a_board_without_a_gpu() -> None:
    reading = simulate("Raspberry Pi 5 8GB")
    assert reading.gpus == ()
    assert (reading.cpu.total_bytes, reading.cpu.bandwidth_gb_per_s) == (8 * GIB, 17.1)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(HardwareError) as caught:
        simulate("GeForce RTX 4085")
    assert "GeForce RTX 4080" in (caught.value.hint or "")


@pytest.mark.parametrize("name", ["", "0x", "toaster", "9999999 RTX", "x RTX"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(HardwareError):
        simulate(name)


def test_every_device_of_the_table_can_be_simulated() -> None:
    for row in load_device_table():
        reading = simulate(row.name)
        for device in reading.devices:
            assert device.free_bytes is not None and device.total_bytes is not None, row.name
            assert 0 < device.usable_bytes < device.total_bytes, row.name
