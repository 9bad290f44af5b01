"""The fit table of a model that is here: every quant of it against this machine."""

from __future__ import annotations

import asyncio

from localllm.core.control import FitTable
from localllm.core.errors import LocalLLMError
from localllm.core.facts import ModelFacts
from localllm.core.machine import Machine
from localllm.core.memory import DEFAULT_ENGINE
from localllm.core.recommend import fit_table
from localllm.engines.measurements import MeasurementFile
from localllm.engines.own_speed import own_ratios
from localllm.hardware.devices import load_device_table
from localllm.hub.names import parse_name
from localllm.hub.store import StoredModel
from localllm.service.runtime import Runtime


async def fit_of(
    runtime: Runtime, name: str, *, context_length: int | None, kv_type: str, parallel: int
) -> FitTable:
    """One row per quant; files that are here count with their real size, and memory as the ledger knows it.

    What was learned here counts: from earlier loads for the memory, from ``localllm bench`` for the speed.

    Raises:
        ModelNotFound, ModelAmbiguous, GGUFError.
    """
    model = runtime.manager.resolve(name)
    facts = await runtime.planning.facts(model)
    machine = await runtime.machine.get(newer_than_s=5.0)
    base = parse_name(model.name).base
    same = [other for other in runtime.catalogue.list() if parse_name(other.name).base == base]
    return await asyncio.to_thread(
        fit_table,
        facts,
        machine,
        model=model.name,
        here={other.quant: other.size_bytes for other in same if other.quant},
        context_length=context_length,
        kv_type=kv_type,
        parallel=parallel,
        available_bytes=await runtime.manager.room.budget_for(model.name),
        device_table=load_device_table(),
        own_ratios=await _own_ratios(runtime, same, machine),
        corrections=await runtime.learning.corrections(DEFAULT_ENGINE),
    )


async def _own_ratios(runtime: Runtime, same: list[StoredModel], machine: Machine) -> tuple[float, ...]:
    history = await asyncio.to_thread(MeasurementFile(runtime.paths.measurements_file).read)
    measured = {each.model_key for each in history}
    facts: dict[str, ModelFacts] = {}
    for model in runtime.catalogue.list():
        if model.key in measured:
            try:
                facts[model.key] = await runtime.planning.facts(model)
            except LocalLLMError:
                continue  # a file that cannot be read any more has nothing to say about speed
    keys = [model.key for model in same]
    return own_ratios(history, facts.get, machine, keys=keys, device_table=load_device_table())
