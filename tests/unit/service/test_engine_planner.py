from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from localllm.core.config import EngineSettings
from localllm.core.control import LoadRequest
from localllm.core.errors import DoesNotFit, GGUFError
from localllm.hub.store import StoredModel
from localllm.service.engine_planner import EnginePlanner
from localllm.service.planning import Planned
from tests.support.fixed_planning import FixedPlanning
from tests.support.stored_models import stored_model

PLENTY = {"cpu": 1 << 30}


class Unreadable(FixedPlanning):
    """A planner that meets a header it cannot read."""

    async def plan(self, *args: object, **fields: object) -> Planned:
        raise GGUFError("its architecture exists only in Ollama")


def planner(inner: FixedPlanning | None = None, *, parallel: int = 3) -> EnginePlanner:
    return EnginePlanner(inner or FixedPlanning(), EngineSettings(), ollama_parallel=parallel)


@pytest.fixture
def model(tmp_path: Path) -> StoredModel:
    return stored_model("m", tmp_path / "m.gguf")


async def test_other_engines_plans_pass_through(model: StoredModel) -> None:
    planned = await planner().plan(model, LoadRequest(model="m", engine="llama_cpp"), PLENTY)
    assert (planned.launch.parallel, planned.launch.engine_model) == (2, None)


async def test_ollama_decides_how_many_it_answers_at_once(model: StoredModel) -> None:
    planned = await planner().plan(model, LoadRequest(model="m", engine="ollama", parallel=8), PLENTY)
    assert (planned.launch.parallel, planned.launch.engine_model) == (3, None)


async def test_a_model_of_ollamas_own_store_is_run_by_its_name(model: StoredModel) -> None:
    theirs = replace(model, name="gemma3:latest", owner="ollama")
    planned = await planner().plan(theirs, LoadRequest(model="m", engine="ollama"), PLENTY)
    assert planned.launch.engine_model == "gemma3:latest"
    elsewhere = await planner().plan(theirs, LoadRequest(model="m", engine="llama_server"), PLENTY)
    assert elsewhere.launch.engine_model is None


async def test_a_file_only_ollama_can_read_is_planned_by_its_size(model: StoredModel) -> None:
    theirs = replace(model, name="odd:latest", owner="ollama", size_bytes=1000)
    request = LoadRequest(model="odd", engine="ollama", context_length=512)
    planned = await planner(Unreadable()).plan(theirs, request, {"cpu": 5000, "cuda0": 2000})
    assert planned.bytes_by_device == {"cuda0": 1250}
    assert (planned.launch.context_length, planned.launch.engine_model) == (512, "odd:latest")
    with pytest.raises(DoesNotFit) as caught:
        await planner(Unreadable()).plan(theirs, request, {"cpu": 1000})
    assert caught.value.details["needed_bytes"] == 1250


async def test_another_machines_model_takes_nothing_here(model: StoredModel) -> None:
    far = replace(model, name="far/org/big", owner="remote:far", trained_context_length=99)
    planned = await planner().plan(far, LoadRequest(model="far/org/big"), {"cpu": 0})
    assert (planned.bytes_by_device, planned.launch.engine_model) == ({}, "org/big")
