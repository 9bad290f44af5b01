"""AMD GPUs through the amdgpu driver: cards with their own memory, and APUs that borrow the host's.

Sizes come from the driver's ``mem_info_*`` files, the architecture from KFD's topology (present where ROCm can compute).
An APU has a carve-out that Linux does not count as RAM (its "VRAM") and may map host memory beyond it (GTT).
"""

from __future__ import annotations

from msgspec import Struct

from localllm.core.device_table import DeviceRow, match_device
from localllm.core.machine import Device, DeviceKind, Evidence, Holder
from localllm.core.units import MIB
from localllm.hardware.asking import Asker
from localllm.hardware.drm_clients import drm_holders
from localllm.hardware.evidence import Answer, EvidenceBook
from localllm.hardware.found import Found, Scene
from localllm.hardware.memory import HOST_MARGIN_RULE, host_margin_bytes
from localllm.hardware.parsing import to_bytes, to_int, word_pairs
from localllm.hardware.pci import AMD, Card, drm_cards, known_card, libdrm_name

_KFD = "/sys/class/kfd/kfd"
# A ROCm context takes about 250 MiB; the rest is for the display and what the driver moves around.
_MARGIN_BYTES = 512 * MIB
# Graphics cores built into processors, by LLVM's names: they have no memory of their own.
_APU_TARGETS = frozenset(
    [
        "gfx902",
        "gfx909",
        "gfx90c",
        "gfx1013",
        "gfx1033",
        "gfx1035",
        "gfx1036",
        "gfx1037",
        "gfx1103",
        "gfx1150",
        "gfx1151",
        "gfx1152",
        "gfx1153",
    ]
)
# Two compute units draw a desktop; the processor's own cores are faster at everything else.
_FEWEST_COMPUTE_UNITS = 6
# KFD's heap types for memory on the card (public, private): HSA_HEAPTYPE in the ROCm headers.
_FRAME_BUFFERS = (1, 2)


class _Node(Struct, frozen=True):
    """A GPU in KFD's topology."""

    gpu_id: int | None
    target: str
    compute_units: int
    vram_bytes: int
    bus_bits: int | None
    memory_clock_mhz: int | None


def probe_amd(scene: Scene) -> Found:
    """Find AMD GPUs of the amdgpu driver on Linux."""
    if scene.asker.system != "Linux":
        return Found()
    cards = list(drm_cards(scene.asker, AMD))
    if not cards:
        return Found()
    nodes = _kfd_nodes(scene.asker)
    holders = drm_holders(scene.asker)
    devices: list[Device] = []
    problems: list[str] = []
    notes: list[Evidence] = []
    for card in cards:
        if card.driver != "amdgpu":
            problems.append(
                f"AMD: the card at {card.slot} is not driven by amdgpu ({card.driver or 'no driver'})."
            )
            continue
        node = nodes.get(card.slot)
        unified = _is_unified(card, node)
        if unified and node is not None and node.compute_units < _FEWEST_COMPUTE_UNITS:
            notes.append(
                Evidence(
                    "gpu",
                    card.folder,
                    node.target,
                    False,
                    f"{node.compute_units} compute units: too few to use",
                )
            )
            continue
        backend = "rocm" if node is not None else "vulkan"
        position = sum(device.backend == backend for device in devices)
        held = _kfd_holders(scene.asker, node) or holders.get(card.slot, ())
        devices.append(
            _device(scene, card, node, unified=unified, device_id=f"{backend}{position}", held=held)
        )
    return Found(devices=tuple(devices), problems=tuple(problems), host_evidence=tuple(notes))


def _device(
    scene: Scene, card: Card, node: _Node | None, *, unified: bool, device_id: str, held: tuple[Holder, ...]
) -> Device:
    asker, folder = scene.asker, card.device_folder
    book = EvidenceBook()
    known = known_card(card)
    name = book.first(
        "name",
        Answer("product_name in sysfs", asker.text(f"{folder}/product_name") or None),
        Answer("libdrm amdgpu.ids", libdrm_name(asker, card)),
        Answer("PCI id", known.name if known else None, f"{card.device:04x} rev {card.revision or 0:02x}"),
        Answer("KFD", f"AMD {node.target}" if node else None),
    )
    total, free = _unified_memory(scene, folder, book) if unified else _card_memory(asker, folder, node, book)
    row = match_device(name or "", scene.table, memory_bytes=None if unified else total)
    bandwidth = book.first(
        "bandwidth_gb_per_s",
        Answer("device table", row.bandwidth_gb_per_s if row else None, row.name if row else None),
        Answer("KFD bus width × memory clock × 16 (GDDR6)", _gddr6_bandwidth(node, row, unified)),
    )
    margin = host_margin_bytes(total) if unified else _MARGIN_BYTES
    book.first("margin_bytes", Answer(HOST_MARGIN_RULE if unified else "ROCm context, display", margin))
    return Device(
        id=device_id,
        kind=DeviceKind.GPU,
        name=name or "AMD GPU",
        backend="rocm" if node is not None else "vulkan",
        vendor="AMD",
        total_bytes=total,
        free_bytes=free,
        margin_bytes=margin,
        unified=unified,
        bandwidth_gb_per_s=bandwidth,
        compute_capability=node.target if node else None,
        driver=card.driver,
        address=card.folder,
        cores=node.compute_units if node else None,
        holders=held,
        evidence=book.entries(),
    )


def _card_memory(
    asker: Asker, folder: str, node: _Node | None, book: EvidenceBook
) -> tuple[int | None, int | None]:
    """A card's own memory. Its GTT is the host's, reached over PCIe: not counted."""
    total = book.first(
        "total_bytes",
        Answer("mem_info_vram_total", to_bytes(asker.text(f"{folder}/mem_info_vram_total")) or None),
        Answer("KFD mem_banks", node.vram_bytes or None if node else None),
    )
    used = to_bytes(asker.text(f"{folder}/mem_info_vram_used"))
    free = total - used if total is not None and used is not None and used <= total else None
    return total, book.first("free_bytes", Answer("VRAM total − used", free))


def _unified_memory(scene: Scene, folder: str, book: EvidenceBook) -> tuple[int | None, int | None]:
    """An APU's memory: what is left of its carve-out, and of GTT as far as the host still has memory for it."""
    asker = scene.asker
    figures = {
        name: to_bytes(asker.text(f"{folder}/mem_info_{name}"))
        for name in ("vram_total", "vram_used", "gtt_total", "gtt_used")
    }
    vram_total, gtt_total = figures["vram_total"], figures["gtt_total"]
    total = None if vram_total is None and gtt_total is None else (vram_total or 0) + (gtt_total or 0)
    vram_free = max(0, (vram_total or 0) - (figures["vram_used"] or 0))
    gtt_free = max(0, (gtt_total or 0) - (figures["gtt_used"] or 0))
    mappable = book.lowest(
        "mappable_bytes",
        Answer("GTT total − used", gtt_free if gtt_total is not None else None),
        Answer("host RAM available", scene.host.available_bytes),
    )
    free = None if total is None or mappable is None else vram_free + mappable
    return (
        book.first("total_bytes", Answer("VRAM carve-out + GTT", total or None)),
        book.first("free_bytes", Answer("VRAM free + mappable", free)),
    )


def _is_unified(card: Card, node: _Node | None) -> bool:
    if node is not None:
        return node.target in _APU_TARGETS
    known = known_card(card)
    return known is not None and known.unified


def _gddr6_bandwidth(node: _Node | None, row: DeviceRow | None, unified: bool) -> float | None:
    """Peak in 10^9 bytes/s of a card the table does not have. Only RDNA cards are known to use GDDR6 throughout."""
    if node is None or unified or row is not None or node.target[:5] not in ("gfx10", "gfx11", "gfx12"):
        return None
    if node.bus_bits is None or node.memory_clock_mhz is None:
        return None
    if not 64 <= node.bus_bits <= 1024 or not 400 <= node.memory_clock_mhz <= 2500:
        return None
    return round(node.bus_bits / 8 * node.memory_clock_mhz * 16 / 1000, 1)


def _kfd_nodes(asker: Asker) -> dict[str, _Node]:
    """PCI slot → node. CPUs are nodes too, with no SIMDs; a node masked by a container's cgroup reads as empty."""
    nodes: dict[str, _Node] = {}
    for number in asker.names(f"{_KFD}/topology/nodes"):
        folder = f"{_KFD}/topology/nodes/{number}"
        figures = word_pairs(asker.text(f"{folder}/properties"))
        version, location = figures.get("gfx_target_version", 0), figures.get("location_id")
        if figures.get("simd_count", 0) <= 0 or version <= 0 or location is None:
            continue
        banks = [
            word_pairs(asker.text(f"{folder}/mem_banks/{bank}/properties"))
            for bank in asker.names(f"{folder}/mem_banks")
        ]
        local = [bank for bank in banks if bank.get("heap_type") in _FRAME_BUFFERS]
        first = local[0] if local else {}
        nodes[_slot(figures.get("domain", 0), location)] = _Node(
            gpu_id=to_int(asker.text(f"{folder}/gpu_id")),
            target=gfx_name(version),
            compute_units=figures["simd_count"] // max(1, figures.get("simd_per_cu", 2)),
            vram_bytes=sum(bank.get("size_in_bytes", 0) for bank in local),
            bus_bits=first.get("width"),
            memory_clock_mhz=first.get("mem_clk_max"),
        )
    return nodes


def gfx_name(version: int) -> str:
    """KFD's ``gfx_target_version`` as LLVM's name: 110501 → ``gfx1151``, 90010 → ``gfx90a``."""
    major, rest = divmod(version, 10_000)
    minor, stepping = divmod(rest, 100)
    return f"gfx{major}{minor:x}{stepping:x}"


def _slot(domain: int, location: int) -> str:
    """KFD packs bus, device and function as PCI does: 8, 5 and 3 bits."""
    return f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"


def _kfd_holders(asker: Asker, node: _Node | None) -> tuple[Holder, ...]:
    """Compute processes and their VRAM, which KFD lists for every user."""
    if node is None or node.gpu_id is None:
        return ()
    holders: list[Holder] = []
    for name in asker.names(f"{_KFD}/proc"):
        pid = to_int(name)
        amount = to_bytes(asker.text(f"{_KFD}/proc/{name}/vram_{node.gpu_id}"))
        if pid is not None and amount:
            holders.append(Holder(pid=pid, name=asker.text(f"/proc/{pid}/comm") or "unknown", bytes=amount))
    return tuple(sorted(holders, key=lambda holder: -(holder.bytes or 0)))
