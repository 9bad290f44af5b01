"""A machine that is not here, from the device table: ``--simulate "RTX 4090"``, ``"2x RTX 3090"``, ``"M3 Max 64GB"``.

What the table does not say is assumed and marked as such in the evidence: an idle system, and beside a card the host
memory that such a machine usually has.
"""

from __future__ import annotations

import difflib
import re
from typing import Literal

from localllm.core.device_table import DeviceClass, DeviceRow, match_device
from localllm.core.errors import HardwareError
from localllm.core.machine import Device, DeviceKind, Machine
from localllm.core.units import GIB, MIB
from localllm.hardware.apple import METAL_MARGIN_BYTES, default_working_set_bytes
from localllm.hardware.devices import load_device_table
from localllm.hardware.evidence import Answer, EvidenceBook
from localllm.hardware.memory import host_margin_bytes
from localllm.hardware.nvidia import CARD_MARGIN_BYTES

_COUNT = re.compile(r"^\s*(\d{1,2})\s*[x×]\s*(?=\S)", re.IGNORECASE)
_MEMORY = re.compile(r"\b(\d{1,4})\s*gi?b\b", re.IGNORECASE)
_BACKENDS: dict[str, Literal["cuda", "rocm", "vulkan", "metal"]] = {
    "NVIDIA": "cuda",
    "AMD": "rocm",
    "Intel": "vulkan",
    "Apple": "metal",
}
# What an idle driver keeps of a card's memory, and an idle desktop of the host's.
_DRIVER_BYTES = 512 * MIB


def simulate(name: str, *, host_memory_bytes: int | None = None) -> Machine:
    """Plan for ``name``: a device of the table, optionally ``N x`` of it and with another memory size (``64GB``).

    ``host_memory_bytes`` sets the RAM beside a card; without it, it is assumed.

    Raises:
        HardwareError: no device of that name is known; the hint names the nearest.
    """
    rows = load_device_table()
    counted = _COUNT.match(name)
    count = max(1, int(counted.group(1))) if counted else 1
    wanted = name[counted.end() :] if counted else name
    row = match_device(wanted, rows)
    if row is None:
        near = difflib.get_close_matches(wanted, [known.name for known in rows], n=3, cutoff=0.4)
        hint = f"Near: {', '.join(near)}." if near else "All of them: localllm hw --devices"
        raise HardwareError(f"No device named {wanted.strip()!r} is known.", hint=hint)
    sized = _MEMORY.search(wanted)
    memory = int(sized.group(1)) * GIB if sized else row.memory_bytes
    host_total, assumed = _host_memory(row, memory, count, host_memory_bytes)
    devices = [_cpu(row, host_total, assumed)]
    if row.device_class is not DeviceClass.CPU:
        devices += [_gpu(row, memory, host_total, number) for number in range(count)]
    return Machine(
        hostname=f"simulated {count} × {row.name}" if count > 1 else f"simulated {row.name}",
        system="Darwin" if row.vendor == "Apple" else "Linux",
        devices=tuple(devices),
        simulated=True,
    )


def _host_memory(row: DeviceRow, memory: int | None, count: int, asked: int | None) -> tuple[int, bool]:
    """The host's RAM, and whether it is an assumption."""
    if asked is not None:
        return asked, False
    if row.device_class in (DeviceClass.UNIFIED, DeviceClass.CPU):
        return (memory, False) if memory is not None else (32 * GIB, True)
    if row.device_class is DeviceClass.LAPTOP:
        return 16 * GIB, True
    return max(32 * GIB, 2 * count * (memory or 0)), True


def _cpu(row: DeviceRow, total: int, assumed: bool) -> Device:
    book = EvidenceBook()
    is_this = row.device_class in (DeviceClass.CPU, DeviceClass.UNIFIED)
    note = "assumed" if assumed else None
    bandwidth = book.first(
        "bandwidth_gb_per_s", Answer("device table", row.bandwidth_gb_per_s if is_this else None)
    )
    return Device(
        id="cpu",
        kind=DeviceKind.CPU,
        name=row.name if is_this else "CPU",
        backend="cpu",
        vendor=row.vendor if is_this else None,
        total_bytes=book.first("total_bytes", Answer("simulated host", total, note)),
        free_bytes=book.first("free_bytes", Answer("idle system", _idle_free(total), "assumed")),
        margin_bytes=host_margin_bytes(total),
        bandwidth_gb_per_s=bandwidth,
        evidence=book.entries(),
    )


def _gpu(row: DeviceRow, memory: int | None, host_total: int, number: int) -> Device:
    book = EvidenceBook()
    unified = row.device_class is DeviceClass.UNIFIED
    backend = _BACKENDS.get(row.vendor or "", "vulkan")
    if row.vendor == "Apple":
        limit = default_working_set_bytes(host_total)
        total = book.first("total_bytes", Answer("macOS default working set", limit))
        free = book.lowest(
            "free_bytes", Answer("limit", limit), Answer("idle system", _idle_free(host_total))
        )
    elif unified:
        total = book.first("total_bytes", Answer("host RAM", host_total))
        free = book.first("free_bytes", Answer("idle system", _idle_free(host_total), "assumed"))
    else:
        total = book.first("total_bytes", Answer("device table", memory, row.name))
        left = None if memory is None else memory - _DRIVER_BYTES
        free = book.first("free_bytes", Answer("idle card", left, "assumed"))
    bandwidth = book.first("bandwidth_gb_per_s", Answer("device table", row.bandwidth_gb_per_s, row.name))
    return Device(
        id=f"{backend}{number}",
        kind=DeviceKind.GPU,
        name=row.name,
        backend=backend,
        vendor=row.vendor,
        total_bytes=total,
        free_bytes=free,
        margin_bytes=_margin(row, total),
        unified=unified,
        bandwidth_gb_per_s=bandwidth,
        evidence=book.entries(),
    )


def _margin(row: DeviceRow, total: int | None) -> int:
    if row.vendor == "Apple":
        return METAL_MARGIN_BYTES
    return host_margin_bytes(total) if row.device_class is DeviceClass.UNIFIED else CARD_MARGIN_BYTES


def _idle_free(total: int) -> int:
    """What an idle system leaves: all but 8 %, at least 1 and at most 6 GiB."""
    return total - min(max(total * 8 // 100, GIB), 6 * GIB)
