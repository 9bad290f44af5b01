"""Intel GPUs through the i915 and xe drivers: Arc cards, and the graphics of Core Ultra processors.

Neither driver tells how much of a card's memory is free, and mainline i915 not even how much there is. The total is then
the smaller of the known model's memory and the card's PCI window, and free is what no visible process holds.
"""

from __future__ import annotations

import re

from localllm.core.device_table import match_device
from localllm.core.machine import Device, DeviceKind, Evidence
from localllm.core.units import GIB, MIB
from localllm.hardware.asking import Asker
from localllm.hardware.drm_clients import drm_holders
from localllm.hardware.evidence import Answer, EvidenceBook
from localllm.hardware.found import Found, Scene
from localllm.hardware.memory import HOST_MARGIN_RULE, host_margin_bytes
from localllm.hardware.parsing import to_bytes, to_int
from localllm.hardware.pci import INTEL, Card, KnownCard, drm_cards, known_card

# The driver reserves some of a card's memory, and others' processes are invisible to us.
_MARGIN_BYTES = 768 * MIB
# Mesa lets Vulkan have three quarters of the host's memory where that is more than 4 GiB (anv, memory heaps).
_SHARED_PART = 0.75


def probe_intel(scene: Scene) -> Found:
    """Find Intel GPUs worth computing on. Older integrated graphics are named as evidence and left out."""
    if scene.asker.system != "Linux":
        return Found()
    devices: list[Device] = []
    notes: list[Evidence] = []
    problems: list[str] = []
    for card in drm_cards(scene.asker, INTEL):
        known = known_card(card)
        own = _own_memory(scene.asker, card)
        if card.driver not in ("i915", "xe"):
            problems.append(
                f"Intel: the card at {card.slot} has no driver that computes ({card.driver or 'none'})."
            )
        elif known is None and own is None:
            note = "integrated graphics without matrix units: slower than the processor"
            notes.append(Evidence("gpu", card.folder, f"Intel {card.device:04x}", False, note))
        else:
            unified = own is None and known is not None and known.unified
            devices.append(_device(scene, card, known, f"vulkan{len(devices)}", unified=unified))
    return Found(devices=tuple(devices), problems=tuple(problems), host_evidence=tuple(notes))


def _device(scene: Scene, card: Card, known: KnownCard | None, device_id: str, *, unified: bool) -> Device:
    book = EvidenceBook()
    name = book.first("name", Answer("PCI id", known.name if known else None, f"{card.device:04x}"))
    row = match_device(name or "", scene.table)
    holders = drm_holders(scene.asker, shared=unified).get(card.slot, ())
    if unified:
        total, free = _shared_memory(scene, book)
    else:
        expected = row.memory_bytes if row else None
        total = book.first(
            "total_bytes",
            Answer("xe physical_vram_size_bytes / i915 lmem_total_bytes", _own_memory(scene.asker, card)),
            Answer("known model, PCI window", _smaller(expected, _pci_window(scene.asker, card))),
        )
        held = sum(holder.bytes or 0 for holder in holders)
        left = None if total is None else max(0, total - held)
        free = book.first(
            "free_bytes", Answer("total − visible processes", left, "other users' processes are not visible")
        )
    margin = host_margin_bytes(total) if unified else _MARGIN_BYTES
    book.first(
        "margin_bytes", Answer(HOST_MARGIN_RULE if unified else "driver's reserve, others' processes", margin)
    )
    return Device(
        id=device_id,
        kind=DeviceKind.GPU,
        name=name or f"Intel GPU {card.device:04x}",
        backend="vulkan",
        vendor="Intel",
        total_bytes=total,
        free_bytes=free,
        margin_bytes=margin,
        unified=unified,
        bandwidth_gb_per_s=book.first(
            "bandwidth_gb_per_s",
            Answer("device table", row.bandwidth_gb_per_s if row else None, row.name if row else None),
        ),
        driver=card.driver,
        address=card.folder,
        holders=holders,
        evidence=book.entries(),
    )


def _shared_memory(scene: Scene, book: EvidenceBook) -> tuple[int | None, int | None]:
    host = scene.host
    total = None if host.total_bytes is None else int(host.total_bytes * _SHARED_PART)
    return (
        book.first("total_bytes", Answer("three quarters of host RAM", total)),
        book.lowest(
            "free_bytes", Answer("host RAM available", host.available_bytes), Answer("three quarters", total)
        ),
    )


def _own_memory(asker: Asker, card: Card) -> int | None:
    """A card's memory as the driver tells it: xe per tile, out-of-tree i915 as a whole."""
    tiles = [name for name in asker.names(card.device_folder) if re.fullmatch(r"tile\d{1,2}", name)]
    sizes = [to_bytes(asker.text(f"{card.device_folder}/{tile}/physical_vram_size_bytes")) for tile in tiles]
    known = [size for size in sizes if size]
    return sum(known) if known else to_bytes(asker.text(f"{card.folder}/lmem_total_bytes")) or None


def _pci_window(asker: Asker, card: Card) -> int | None:
    """The size of BAR 2 with a resizable BAR: the card's memory, rounded up to a power of two.

    Without one it is 256 MiB and tells nothing. Lines of ``resource`` are ``start end flags`` in hex.
    """
    lines = (asker.text(f"{card.device_folder}/resource") or "").splitlines()
    fields = lines[2].split() if len(lines) > 2 else []
    start, end = (
        (to_int(fields[0], base=16), to_int(fields[1], base=16)) if len(fields) == 3 else (None, None)
    )
    if start is None or end is None:
        return None
    size = end - start + 1
    return size if 2 * GIB <= size <= 1 << 40 else None


def _smaller(first: int | None, second: int | None) -> int | None:
    known = [value for value in (first, second) if value is not None]
    return min(known, default=None)
