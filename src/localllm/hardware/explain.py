"""A machine as plain text: the short report of ``localllm hw``, and with ``--explain`` why each figure is what it is."""

from __future__ import annotations

from collections.abc import Iterator

from localllm.core.machine import Device, DeviceKind, Evidence, Machine
from localllm.core.units import format_bytes

_FIELD_WORDS = {
    "total_bytes": "memory in total",
    "free_bytes": "memory free now",
    "available_bytes": "RAM available",
    "mappable_bytes": "host memory it may map",
    "margin_bytes": "memory left alone",
    "bandwidth_gb_per_s": "memory bandwidth, GB/s",
    "performance_cores": "performance cores",
    "isa": "instruction sets",
    "gpu": "GPUs left out",
}
_FIELD_ORDER = ("name", "total_bytes", "available_bytes", "mappable_bytes", "free_bytes", "margin_bytes")
_LARGEST_HOLDERS = 5


def report(machine: Machine) -> str:
    """A few lines per device: what it is, what can be planned with, and who holds the rest."""
    lines = [_headline(machine)]
    for device in machine.devices:
        lines += ["", *_device_lines(device, machine)]
    if machine.problems:
        lines += ["", "Problems", *(f"  {problem}" for problem in machine.problems)]
    return "\n".join(lines) + "\n"


def explain(machine: Machine) -> str:
    """The report, and under each device every source that was asked: ``*`` marks the answer that was used."""
    lines = [_headline(machine)]
    for device in machine.devices:
        lines += ["", *_device_lines(device, machine), *_evidence_lines(device)]
    lines += ["", "Problems", *(f"  {problem}" for problem in machine.problems or ("none",))]
    return "\n".join(lines) + "\n"


def _headline(machine: Machine) -> str:
    parts = [machine.hostname or "this machine", machine.system]
    if machine.container is not None:
        parts.append(f"in {machine.container}")
    if machine.memory_limit_bytes is not None:
        parts.append(f"limited to {format_bytes(machine.memory_limit_bytes)}")
    if machine.simulated:
        parts.append("simulated, nothing was measured")
    return " · ".join(parts)


def _device_lines(device: Device, machine: Machine) -> Iterator[str]:
    yield f"{device.id}  {device.name}"
    yield f"  memory     {_memory(device, machine.memory_limit_bytes)}"
    details = [
        f"{device.bandwidth_gb_per_s:.0f} GB/s" if device.bandwidth_gb_per_s is not None else None,
        _cores(device),
        f"compute {device.compute_capability}" if device.compute_capability else None,
        f"driver {device.driver}" if device.driver else None,
        "shares the host's memory" if device.unified else None,
    ]
    known = [detail for detail in details if detail]
    if known:
        yield f"  details    {' · '.join(known)}"
    if device.isa:
        yield f"  isa        {' '.join(device.isa)}"
    for holder in device.holders[:_LARGEST_HOLDERS]:
        amount = "?" if holder.bytes is None else format_bytes(holder.bytes)
        yield f"  held by    {holder.name} (pid {holder.pid}) {amount}"
    if len(device.holders) > _LARGEST_HOLDERS:
        yield f"  held by    {len(device.holders) - _LARGEST_HOLDERS} more"


def _memory(device: Device, limit_bytes: int | None) -> str:
    total = "unknown" if device.total_bytes is None else format_bytes(device.total_bytes)
    if device.kind is DeviceKind.CPU and limit_bytes is not None:
        total = f"{format_bytes(limit_bytes)} allowed ({total} in the machine)"
    if device.free_bytes is None:
        return f"{total} in total, free unknown: nothing is planned on it"
    plan = format_bytes(device.usable_bytes)
    margin = format_bytes(device.margin_bytes)
    return f"{format_bytes(device.free_bytes)} free of {total}; {plan} to plan with, {margin} left alone"


def _cores(device: Device) -> str | None:
    if device.cores is None:
        return None
    gpu = device.kind is DeviceKind.GPU
    unit = "compute units" if gpu and device.vendor == "AMD" else "GPU cores" if gpu else "cores"
    parts = [f"{device.cores} {unit}"]
    if device.performance_cores is not None and device.performance_cores != device.cores:
        parts.append(f"{device.performance_cores} fast")
    if device.logical_cores is not None and device.logical_cores != device.cores:
        parts.append(f"{device.logical_cores} threads")
    return ", ".join(parts)


def _evidence_lines(device: Device) -> Iterator[str]:
    fields = {entry.field for entry in device.evidence}
    order = [field for field in _FIELD_ORDER if field in fields]
    order += sorted(fields - set(order))
    for field in order:
        entries = [entry for entry in device.evidence if entry.field == field]
        width = max(len(entry.source) for entry in entries)
        yield f"    {_FIELD_WORDS.get(field, field)}"
        for entry in entries:
            note = f"  ({entry.note})" if entry.note else ""
            yield f"      {'*' if entry.used else ' '} {entry.source:<{width}}  {_value(entry)}{note}"


def _value(entry: Evidence) -> str:
    if entry.field.endswith("_bytes") and entry.value.isdecimal():
        return format_bytes(int(entry.value))
    return entry.value
