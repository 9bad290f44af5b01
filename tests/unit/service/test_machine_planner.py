"""The planner behind the manager: real headers, a machine that the test makes up."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from localllm.core.config import EngineSettings
from localllm.core.control import LoadRequest
from localllm.core.errors import DoesNotFit, GGUFError
from localllm.core.machine import Device, DeviceKind, Machine
from localllm.core.memory import DeviceEstimate, MemoryEstimate
from localllm.hub.store import Store, StoredModel
from localllm.service.machine import MachineReadings
from localllm.service.machine_planner import MachinePlanner, claims
from tests.support.tiny_gguf import write_tiny_gguf

GIB = 1 << 30


def cpu(free: int = 8 * GIB) -> Device:
    return Device(
        id="cpu",
        kind=DeviceKind.CPU,
        name="CPU",
        total_bytes=8 * GIB,
        free_bytes=free,
        margin_bytes=0,
        cores=4,
    )


def machine(*gpus: Device) -> Machine:
    return Machine(hostname="h", system="Linux", devices=(cpu(), *gpus))


@dataclass
class Probe:
    reads: int = 0

    def __call__(self) -> Machine:
        self.reads += 1
        return machine()


@pytest.fixture
def model(tmp_path: Path) -> StoredModel:
    store = Store(tmp_path / "store")
    return store.import_file(write_tiny_gguf(tmp_path / "m.gguf", "llama"), name="m", mode="reference")


async def test_a_plan_is_made_of_the_files_header_the_settings_and_the_wish(model: StoredModel) -> None:
    planner = MachinePlanner(EngineSettings(kv_type="q8_0"), MachineReadings(Probe()))
    planned = await planner.plan(
        model, LoadRequest(model="m", context_length=512, parallel=2), {"cpu": 4 * GIB}
    )

    assert (planned.launch.context_length, planned.launch.parallel) == (512, 2)
    assert planned.launch.kv_type_k == "q8_0" and planned.launch.model_path == str(model.path)
    assert planned.total_bytes == planned.bytes_by_device["cpu"] > model.size_bytes
    assert planned.total_layers == 5


async def test_what_a_model_is_for_decides_what_is_left_open(tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "long.gguf", "llama", context_length=131_072)
    model = Store(tmp_path / "store").import_file(path, name="long", mode="reference")
    planner = MachinePlanner(EngineSettings(context_length=4096), MachineReadings(Probe()))

    async def context_of(profile: Literal["agent", "batch"] | None) -> int:
        request = LoadRequest(model="long", profile=profile)
        return (await planner.plan(model, request, {"cpu": 8 * GIB})).launch.context_length

    assert await context_of(None) == 4096  # the settings', as nobody said what for
    assert await context_of("batch") == 8192
    assert await context_of("agent") >= 32_768


async def test_what_the_ledger_leaves_decides_and_not_what_is_built_in(model: StoredModel) -> None:
    planner = MachinePlanner(EngineSettings(), MachineReadings(Probe()))
    with pytest.raises(DoesNotFit):
        await planner.plan(model, LoadRequest(model="m"), {"cpu": 1 << 20})


async def test_a_file_that_is_gone_is_an_error_with_a_way_out(model: StoredModel) -> None:
    planner = MachinePlanner(EngineSettings(), MachineReadings(Probe()))
    facts = await planner.facts(model)
    assert await planner.facts(model) is facts
    _remove(model)
    with pytest.raises(GGUFError) as caught:
        await planner.facts(model)
    assert "localllm rm" in (caught.value.hint or "")


async def test_readings_are_shared_and_dated() -> None:
    probe = Probe()
    readings = MachineReadings(probe)
    assert await readings.get() is await readings.get()
    assert probe.reads == 1
    await readings.get(newer_than_s=0.0)
    assert probe.reads == 2 and readings.get_in_thread() is await readings.get()


def test_unified_memory_is_claimed_from_the_host_as_well() -> None:
    unified = Device(
        id="metal0",
        kind=DeviceKind.GPU,
        name="GPU",
        total_bytes=8 * GIB,
        free_bytes=8 * GIB,
        margin_bytes=0,
        unified=True,
    )
    estimate = MemoryEstimate(
        (DeviceEstimate(device_id="cpu", weights=1), DeviceEstimate(device_id="metal0", weights=10))
    )
    assert claims(estimate, machine(unified)) == {"cpu": 11, "metal0": 10}
    assert claims(estimate, machine()) == {"cpu": 1, "metal0": 10}


def _remove(model: StoredModel) -> None:
    model.path.unlink()
