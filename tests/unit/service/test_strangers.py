from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device, DeviceKind
from localllm.engines.ollama.engine import OllamaEngine
from localllm.engines.ollama.wire import Resident
from localllm.service.strangers import OllamaStrangers
from tests.support.scripted_ollama import scripted_ollama


def device(name: str, kind: DeviceKind, total_bytes: int, *, unified: bool = False) -> Device:
    return Device(
        id=name,
        kind=kind,
        name="test",
        total_bytes=total_bytes,
        free_bytes=None,
        margin_bytes=0,
        unified=unified,
    )


CPU = device("cpu", DeviceKind.CPU, 100)
SMALL, LARGE = device("cuda0", DeviceKind.GPU, 10), device("cuda1", DeviceKind.GPU, 20)
UNIFIED = device("metal0", DeviceKind.GPU, 80, unified=True)


@pytest.mark.parametrize(
    ("devices", "held"),
    [
        ([CPU], {"cpu": 15}),
        ([CPU, SMALL, LARGE], {"cpu": 8, "cuda1": 7}),
        ([CPU, UNIFIED], {"cpu": 15, "metal0": 7}),
        ([], {}),
    ],
)
async def test_each_device_loses_what_ollama_holds_on_it(devices: list[Device], held: dict[str, int]) -> None:
    async def residents() -> Sequence[Resident]:
        return [Resident("a", size=10, size_vram=7), Resident("b", size=5)]

    assert await OllamaStrangers(residents)(devices) == held


async def test_what_we_loaded_there_ourselves_is_no_strangers(tmp_path: Path) -> None:
    with scripted_ollama() as ollama:
        ollama.models["other:latest"] = ["completion"]
        engine = OllamaEngine(log_dir=tmp_path, url=ollama.url)
        assert {model.name for model in await engine.strangers()} == {"tiny:latest", "other:latest"}
        plan = LaunchPlan(model_path="", context_length=256, engine_model="tiny")
        instance = await engine.load(plan, lambda progress: None)
        assert [model.name for model in await engine.strangers()] == ["other:latest"]
        await instance.unload()
        assert len(await engine.strangers()) == 2
        await engine.close()


async def test_no_ollama_holds_nothing(tmp_path: Path) -> None:
    engine = OllamaEngine(log_dir=tmp_path, url="http://127.0.0.1:9")
    assert await engine.strangers() == ()
    await engine.close()
