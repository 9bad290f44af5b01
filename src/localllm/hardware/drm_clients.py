"""Which processes hold memory on a graphics card, from the kernel's per-client accounting in /proc/PID/fdinfo.

The keys are the kernel's drm-usage-stats (``drm-resident-vram0``, amdgpu's older ``drm-memory-vram`` …). Only processes
of the same user can be read, so this finds holders; it does not prove that there are no others.
"""

from __future__ import annotations

import re

from localllm.core.machine import Holder
from localllm.hardware.asking import Asker
from localllm.hardware.parsing import colon_values, plausible_bytes, to_int

_AMOUNT = re.compile(r"(\d{1,18})(?:\s*(KiB|MiB|GiB))?", re.ASCII)
_UNITS = {None: 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_DEVICE_MEMORY = ("vram", "local")
# A busy desktop has a few hundred processes, of which a handful draw; more than this is not worth a detection's time.
_MOST_PROCESSES = 2000


def drm_holders(asker: Asker, *, shared: bool = False) -> dict[str, tuple[Holder, ...]]:
    """PCI slot → processes holding its memory, the largest first.

    ``shared`` counts system memory that is bound to the card too, as on a GPU without memory of its own.
    """
    held: dict[str, list[Holder]] = {}
    pids = [pid for pid in (to_int(name) for name in asker.names("/proc")) if pid is not None]
    for pid in pids[:_MOST_PROCESSES]:
        by_slot = _held_by(asker, pid, shared)
        name = asker.text(f"/proc/{pid}/comm") if by_slot else None
        for slot, amount in by_slot.items():
            held.setdefault(slot, []).append(Holder(pid=pid, name=name or "unknown", bytes=amount))
    return {
        slot: tuple(sorted(found, key=lambda holder: -(holder.bytes or 0))) for slot, found in held.items()
    }


def _held_by(asker: Asker, pid: int, shared: bool) -> dict[str, int]:
    """Bytes per slot. Several descriptors of one client repeat its figures, so each client counts once."""
    clients: dict[tuple[str, str], int] = {}
    for number in asker.names(f"/proc/{pid}/fd"):
        if not (asker.target(f"/proc/{pid}/fd/{number}") or "").startswith("/dev/dri/"):
            continue
        fields = colon_values(asker.text(f"/proc/{pid}/fdinfo/{number}"))
        slot = fields.get("drm-pdev")
        if slot is not None:
            client = (slot, fields.get("drm-client-id", number))
            clients[client] = max(clients.get(client, 0), client_bytes(fields, shared=shared))
    by_slot: dict[str, int] = {}
    for (slot, _), amount in clients.items():
        by_slot[slot] = by_slot.get(slot, 0) + amount
    return {slot: amount for slot, amount in by_slot.items() if amount > 0}


def client_bytes(fields: dict[str, str], *, shared: bool = False) -> int:
    """What one client keeps in device memory, from one fdinfo's fields."""
    wanted = (*_DEVICE_MEMORY, "gtt", "system") if shared else _DEVICE_MEMORY
    best: dict[str, int] = {}
    for prefix in ("drm-resident-", "drm-memory-"):
        for key, value in fields.items():
            region = key.removeprefix(prefix)
            if region != key and region.startswith(wanted) and region not in best:
                best[region] = _amount(value)
    # "vram" and "vram0" name one region in two dialects; the larger is the whole.
    groups: dict[str, int] = {}
    for region, amount in best.items():
        group = region.rstrip("0123456789")
        groups[group] = max(groups.get(group, 0), amount)
    return sum(groups.values())


def _amount(text: str) -> int:
    match = _AMOUNT.fullmatch(text.strip())
    if match is None:
        return 0
    return plausible_bytes(int(match.group(1)) * _UNITS[match.group(2)]) or 0
