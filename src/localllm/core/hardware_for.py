"""The question turned round: which hardware would run this model, and how fast?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from localllm.core.budget import budget_of
from localllm.core.device_table import DeviceClass, DeviceRow
from localllm.core.facts import ModelFacts
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device, DeviceKind, Machine
from localllm.core.memory import CPU_ID, Estimator
from localllm.core.search import Search
from localllm.core.speed import estimate_speed
from localllm.core.units import GIB, MIB

GPU_MARGIN_BYTES: Final = 600 * MIB
"""What a display and a driver keep of a card that nobody has looked at yet."""

UNIFIED_SHARE: Final = 0.75
"""What a system with one memory lets its GPU have (Apple's default working-set limit)."""

_HOST_RAM_BYTES: Final = 64 * GIB
_HOST_BANDWIDTH_GB_PER_S: Final = 60.0


class Candidate(Struct, frozen=True, kw_only=True):
    """A device from the table that runs the model whole at the context asked for."""

    device: str
    device_class: str
    memory_bytes: int
    spare_bytes: int
    decode_tokens_per_second: float | None
    decode_low: float | None
    decode_high: float | None


class HardwareNeed(Struct, frozen=True, kw_only=True):
    """``gpu_bytes``: what one GPU must have free for all layers; ``ram_bytes``: what a CPU alone needs."""

    context_length: int
    gpu_bytes: int
    ram_bytes: int
    candidates: tuple[Candidate, ...]


def hardware_for(
    facts: ModelFacts,
    table: Sequence[DeviceRow],
    *,
    context_length: int = 8_192,
    parallel: int = 1,
    kv_type: str = "f16",
) -> HardwareNeed:
    """What it takes to run this file, and the known devices that have it, smallest first."""
    plan = LaunchPlan(
        model_path="",
        context_length=context_length,
        parallel=parallel,
        kv_type_k=kv_type,
        kv_type_v=kv_type,
        flash_attention="auto" if kv_type in ("f16", "bf16", "f32") else "on",
        gpu_layers=facts.total_layers,
    )
    ideal = _machine("any", 1 << 50, "NVIDIA", 1_000.0, unified=False)
    on_gpu = Estimator(facts, ideal.gpus).estimate(plan)
    on_cpu = Estimator(facts, ()).estimate(plan)
    found = [candidate for row in table if (candidate := _candidate(facts, plan, row, table)) is not None]
    found.sort(key=lambda candidate: (candidate.memory_bytes, candidate.device))
    return HardwareNeed(
        context_length=context_length,
        gpu_bytes=on_gpu.on("gpu0").total,
        ram_bytes=on_cpu.on(CPU_ID).total,
        candidates=tuple(found),
    )


def _candidate(
    facts: ModelFacts, plan: LaunchPlan, row: DeviceRow, table: Sequence[DeviceRow]
) -> Candidate | None:
    if row.memory_bytes is None or row.device_class is DeviceClass.CPU:
        return None
    unified = row.device_class is DeviceClass.UNIFIED
    usable = int(row.memory_bytes * UNIFIED_SHARE) if unified else row.memory_bytes - GPU_MARGIN_BYTES
    machine = _machine(row.name, usable, row.vendor, row.bandwidth_gb_per_s, unified=unified)
    search = Search(Estimator(facts, machine.gpus), budget_of(machine), plan)
    found = search.try_plan(plan)
    if found is None:
        return None
    speed = estimate_speed(facts, plan, machine.gpus, machine.cpu, table)
    return Candidate(
        device=row.name,
        device_class=row.device_class.value,
        memory_bytes=row.memory_bytes,
        spare_bytes=usable - found.estimate.on("gpu0").total,
        decode_tokens_per_second=speed.decode if speed else None,
        decode_low=speed.decode_low if speed else None,
        decode_high=speed.decode_high if speed else None,
    )


def _machine(name: str, usable: int, vendor: str | None, bandwidth: float, *, unified: bool) -> Machine:
    host = usable if unified else _HOST_RAM_BYTES
    cpu = Device(
        id=CPU_ID,
        kind=DeviceKind.CPU,
        name="host",
        backend="cpu",
        total_bytes=host,
        free_bytes=host,
        margin_bytes=0,
        bandwidth_gb_per_s=_HOST_BANDWIDTH_GB_PER_S,
    )
    gpu = Device(
        id="gpu0",
        kind=DeviceKind.GPU,
        name=name,
        backend="cuda" if vendor == "NVIDIA" else "metal" if vendor == "Apple" else "vulkan",
        total_bytes=usable,
        free_bytes=usable,
        margin_bytes=0,
        unified=unified,
        bandwidth_gb_per_s=bandwidth,
    )
    return Machine(hostname="", system="", devices=(cpu, gpu), simulated=True)
