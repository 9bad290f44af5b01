"""Own measurements against the estimate: how much faster or slower this machine is than the formulas think."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from localllm.core.device_table import DeviceRow
from localllm.core.facts import ModelFacts
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Machine
from localllm.core.speed import estimate_speed
from localllm.engines.measurements import Measurement

_CONTEXT = 4_096


def own_ratios(
    history: Iterable[Measurement],
    facts_of: Callable[[str], ModelFacts | None],
    machine: Machine,
    *,
    keys: Sequence[str] = (),
    device_table: Sequence[DeviceRow] = (),
) -> tuple[float, ...]:
    """Measured over estimated decode rates, for ``core.speed.corrected``.

    Where a model of ``keys`` (the quantisations of the one that is asked about) was measured here, those measurements
    alone count; else those of every model whose facts ``facts_of`` (model key → facts) knows.
    """
    if machine.simulated:
        return ()
    newest = _newest(history, {device.name for device in machine.devices})
    own = [measured for measured in newest if measured.model_key in keys]
    found: list[float] = []
    for measured in own or newest:
        facts = facts_of(measured.model_key)
        ratio = _ratio(measured, facts, machine, device_table) if facts is not None else None
        if ratio is not None:
            found.append(ratio)
    return tuple(found)


def _newest(history: Iterable[Measurement], devices: set[str]) -> list[Measurement]:
    """The last measurement of each model with an empty context, on the devices of this machine."""
    last: dict[str, Measurement] = {}
    for measured in sorted(history, key=lambda measured: measured.at):
        if measured.device in devices and measured.depth == 0:
            last[measured.model_key] = measured
    return list(last.values())


def _ratio(
    measured: Measurement, facts: ModelFacts, machine: Machine, device_table: Sequence[DeviceRow]
) -> float | None:
    plan = LaunchPlan(
        model_path="",
        context_length=_CONTEXT,
        gpu_layers=measured.gpu_layers,
        kv_type_k=measured.kv_type,
        kv_type_v=measured.kv_type,
        threads=measured.threads,
    )
    estimate = estimate_speed(facts, plan, machine.gpus, machine.cpu, device_table)
    return measured.decode_tokens_per_second / estimate.decode if estimate else None
