"""The fit table of a model that is here: every quant of it against this machine."""

from __future__ import annotations

import asyncio

from localllm.core.control import FitTable
from localllm.core.recommend import fit_table
from localllm.hub.names import parse_name
from localllm.service.runtime import Runtime


async def fit_of(
    runtime: Runtime, name: str, *, context_length: int | None, kv_type: str, parallel: int
) -> FitTable:
    """One row per quant; files that are here count with their real size, and memory as the ledger knows it.

    Raises:
        ModelNotFound, ModelAmbiguous, GGUFError.
    """
    model = runtime.manager.resolve(name)
    facts = await runtime.planning.facts(model)
    machine = await runtime.machine.get(newer_than_s=5.0)
    base = parse_name(model.name).base
    here = {
        other.quant: other.size_bytes
        for other in runtime.catalogue.list()
        if other.quant and parse_name(other.name).base == base
    }
    return await asyncio.to_thread(
        fit_table,
        facts,
        machine,
        model=model.name,
        here=here,
        context_length=context_length,
        kv_type=kv_type,
        parallel=parallel,
        available_bytes=await runtime.manager.room.budget_for(model.name),
    )
