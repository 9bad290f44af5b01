"""A load teaches the next plan: through the file, the planner and the manager."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from localllm.core.config import EngineSettings
from localllm.core.control import LoadRequest
from localllm.core.learn import Corrections
from localllm.core.memory import DeviceEstimate, MemoryEstimate
from localllm.engines.base import BufferReport, EngineStatus, InstanceInfo
from localllm.engines.residuals import ResidualFile
from localllm.hub.store import Store
from localllm.service.learning import Learning
from localllm.service.machine import MachineReadings
from localllm.service.machine_planner import MachinePlanner
from localllm.service.planning import Planned
from tests.support.plain_machine import machine
from tests.support.scripted_engine import ScriptedEngine
from tests.support.tiny_gguf import write_tiny_gguf
from tests.unit.service.conftest import Parts

GIB = 1 << 30
PLAN = MemoryEstimate((DeviceEstimate(device_id="cpu", weights=1000, kv=100, compute=50, overhead=80),))


class VersionedEngine(ScriptedEngine):
    """An engine whose build can be exchanged."""

    version: str | None = "1"

    async def status(self) -> EngineStatus:
        return EngineStatus(name=self.name, available=True, version=self.version)


@pytest.fixture
def engine() -> VersionedEngine:
    return VersionedEngine()


@pytest.fixture
def file(tmp_path: Path) -> ResidualFile:
    return ResidualFile(tmp_path / "residuals.json")


def learning(file: ResidualFile, engine: VersionedEngine) -> Learning:
    return Learning(file, {engine.name: engine}, MachineReadings(lambda: machine(8)))


def loaded(engine: VersionedEngine, **sizes: int) -> InstanceInfo:
    return InstanceInfo(
        engine=engine.name,
        engine_version="1",
        context_length=512,
        parallel=1,
        capabilities=frozenset(),
        buffers=tuple(BufferReport(kind, "CPU", size) for kind, size in sizes.items()),
    )


async def test_what_a_load_took_is_there_after_a_restart(file: ResidualFile, engine: VersionedEngine) -> None:
    info = loaded(engine, weights=1000, kv=120, compute=40, other=7)
    await learning(file, engine).learn(PLAN, info)
    corrections = await learning(file, engine).corrections(engine.name)
    assert corrections.factors == {("cpu", "kv"): 1.2}  # one load alone does not make a plan smaller
    for _ in range(2):
        await learning(file, engine).learn(PLAN, info)
    corrections = await learning(file, engine).corrections(engine.name)
    assert corrections.factors == {("cpu", "kv"): 1.2, ("cpu", "compute"): 0.8}


async def test_another_build_starts_afresh(file: ResidualFile, engine: VersionedEngine) -> None:
    await learning(file, engine).learn(PLAN, loaded(engine, kv=120))
    engine.version = "2"
    assert await learning(file, engine).corrections(engine.name) == Corrections()
    engine.version = None
    assert await learning(file, engine).corrections(engine.name) == Corrections()


async def test_an_engine_that_says_nothing_teaches_nothing(
    file: ResidualFile, engine: VersionedEngine
) -> None:
    await learning(file, engine).learn(PLAN, loaded(engine))
    engine.version = None
    await learning(file, engine).learn(PLAN, loaded(engine, kv=120))
    assert file.read() == ()


async def test_a_disk_that_is_full_costs_only_the_memory_of_it(
    tmp_path: Path, engine: VersionedEngine
) -> None:
    (tmp_path / "residuals.json").mkdir()
    taught = learning(ResidualFile(tmp_path / "residuals.json"), engine)
    await taught.learn(PLAN, loaded(engine, kv=120))
    assert (await taught.corrections(engine.name)).factors == {("cpu", "kv"): 1.2}


async def test_the_next_plan_is_corrected_and_compared_uncorrected(
    tmp_path: Path, file: ResidualFile, engine: VersionedEngine
) -> None:
    path = write_tiny_gguf(tmp_path / "m.gguf", "llama")
    model = Store(tmp_path / "store").import_file(path, name="m", mode="reference")
    taught = learning(file, engine)
    planner = MachinePlanner(EngineSettings(), MachineReadings(lambda: machine(8)), learning=taught)

    async def plan() -> Planned:
        request = LoadRequest(model="m", engine=engine.name, context_length=1024, parallel=1)
        return await planner.plan(model, request, {"cpu": 4 * GIB})

    first = await plan()
    assert first.memory is not None
    kv = first.memory.kv_bytes
    await taught.learn(first.memory, loaded(engine, kv=2 * kv))
    second = await plan()
    assert second.total_bytes == (first.total_bytes or 0) + kv
    assert second.memory == first.memory


async def test_the_manager_tells_of_each_load_that_went_well(parts: Parts) -> None:
    heard: list[tuple[Planned, InstanceInfo]] = []
    parts.manager._on_loaded = lambda planned, info: heard.append((planned, info))
    await parts.manager.load(LoadRequest(model="a"))
    await asyncio.sleep(0)
    [(planned, info)] = heard
    assert planned.launch.model_path.endswith("a.gguf") and info.engine == parts.engine.name
