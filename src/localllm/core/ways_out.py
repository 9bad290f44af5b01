"""When a model does not fit: what would make it fit, each way computed by the estimator and worded with its figure."""

from __future__ import annotations

from msgspec import structs

from localllm.core.budget import Budget
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Machine
from localllm.core.quant import BITS_PER_WEIGHT
from localllm.core.search import MINIMUM_CONTEXT, Search, with_context
from localllm.core.units import MIB, format_bytes, format_context

_WORTH_SAYING_BYTES = 32 * MIB

SMALLEST_QUANT = "Q2_K"
"""Nothing below it is worth advising, so what it does not save, no quantisation does."""


def ways_out(search: Search, plan: LaunchPlan, budget: Budget, machine: Machine) -> tuple[str, ...]:
    """Sentences, best first. Only ways that really help are listed, and those that suffice alone say so."""
    needed = search.estimate(plan).total_bytes
    found: list[str] = []
    shorter = search.longest_context(plan, plan.context_length)
    if shorter is not None and MINIMUM_CONTEXT <= shorter < plan.context_length:
        freed = needed - search.estimate(with_context(plan, shorter)).total_bytes
        found.append(
            f"Context {format_context(plan.context_length)} → {format_context(shorter)} frees {format_bytes(freed)} and fits."
        )
    if plan.parallel > 1:
        found += _change(
            search, plan, structs.replace(plan, parallel=1), f"{plan.parallel} → 1 parallel sequences"
        )
    if plan.kv_type_k in ("f16", "bf16", "f32"):
        small = structs.replace(plan, kv_type_k="q8_0", kv_type_v="q8_0", flash_attention="on")
        found += _change(search, plan, small, f"KV cache {plan.kv_type_k} → q8_0")
    if plan.gpu_layers > 0:
        found += _change(search, plan, structs.replace(plan, gpu_layers=0), "All layers on the CPU")
    shortage = budget.shortage(search.estimate(plan))
    if shortage is not None:
        found += _holders(machine, shortage.device_id)
        if shortage.missing_bytes <= _saved_by_a_smaller_quant(search, plan):
            found.append(f"A quantisation smaller by {format_bytes(shortage.missing_bytes)} fits.")
    return tuple(found)


def _saved_by_a_smaller_quant(search: Search, plan: LaunchPlan) -> int:
    """What the weights would shrink by as ``SMALLEST_QUANT``; 0 when they are as small as that."""
    smallest = int(search.facts.parameters * BITS_PER_WEIGHT[SMALLEST_QUANT] / 8)
    return max(0, search.estimate(plan).weights_bytes - smallest)


def _change(search: Search, plan: LaunchPlan, changed: LaunchPlan, what: str) -> list[str]:
    freed = search.estimate(plan).total_bytes - search.estimate(changed).total_bytes
    fits = search.try_plan(changed) is not None
    if freed < _WORTH_SAYING_BYTES and not fits:
        return []
    return [f"{what} frees {format_bytes(max(freed, 0))}{' and fits' if fits else ', not enough alone'}."]


def _holders(machine: Machine, device_id: str) -> list[str]:
    device = next((d for d in machine.devices if d.id == device_id), None)
    holders = [h for h in (device.holders if device else ()) if h.bytes and h.bytes >= _WORTH_SAYING_BYTES]
    holders.sort(key=lambda holder: holder.bytes or 0, reverse=True)
    return [
        f"{holder.name} (process {holder.pid}) holds {format_bytes(holder.bytes or 0)} there."
        for holder in holders[:2]
    ]
