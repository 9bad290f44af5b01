"""NVIDIA GPUs: cards through NVML, and the ones whose memory is the host's own (GB10, Jetson)."""

from __future__ import annotations

import re
import sys

import msgspec

from localllm.core.device_table import match_device
from localllm.core.machine import Device, DeviceKind, Holder
from localllm.core.units import MIB, format_bytes
from localllm.hardware.asking import Asker
from localllm.hardware.evidence import Answer, EvidenceBook
from localllm.hardware.found import Found, Scene
from localllm.hardware.memory import HOST_MARGIN_RULE, host_margin_bytes
from localllm.hardware.nvml_answers import NvmlAnswers, NvmlDevice
from localllm.hardware.parsing import plausible_bytes

# A CUDA context takes 116–148 MiB outside any buffer; the rest is slack for what the driver moves around.
CARD_MARGIN_BYTES = 384 * MIB
# A desktop drawn by this GPU grows and shrinks by more.
_DISPLAY_MARGIN_BYTES = 640 * MIB

# Chips without memory of their own, by their NVML name. Only these may answer "Not Supported" for their memory: on any
# other that is a fault, and the host's memory must not be taken for the card's.
_UNIFIED = re.compile(r"\b(GB10|Orin|Thor|Xavier|Tegra)\b", re.IGNORECASE)

# Jetson modules by the SoC in the device tree (NVIDIA's tegra compatible strings).
_TEGRA_CAPABILITY = {
    "tegra210": "5.3",
    "tegra186": "6.2",
    "tegra194": "7.2",
    "tegra234": "8.7",
    "tegra264": "11.0",
}


def probe_nvidia(scene: Scene) -> Found:
    """Find NVIDIA GPUs. Costs nothing where no driver is installed."""
    asker = scene.asker
    if not _driver_is_there(asker, scene.wsl):
        jetson = _jetson(scene)
        return jetson if jetson.devices else Found(problems=_card_without_driver(asker))
    text = asker.output("nvml", (sys.executable, "-m", "localllm.hardware.nvml_answers"))
    if text is None:
        reason = asker.failure("nvml") or "no answer"
        hint = "A GPU may have fallen off the bus; see dmesg" if "no answer" in reason else "Run nvidia-smi"
        return Found(problems=(f"NVIDIA: the driver is there, but NVML failed ({reason}). {hint}.",))
    try:
        answers = msgspec.json.decode(text, type=NvmlAnswers)
    except msgspec.MsgspecError as error:
        return Found(problems=(f"NVIDIA: the answer of NVML makes no sense ({error}).",))
    if answers.error is not None:
        jetson = _jetson(scene)
        if jetson.devices:
            return jetson
        said = answers.error.rstrip(".")
        return Found(problems=(f"NVIDIA: NVML says: {said}. Run nvidia-smi to see more.",))
    return _cards(scene, answers)


def _cards(scene: Scene, answers: NvmlAnswers) -> Found:
    # By PCI address, as CUDA numbers them under CUDA_DEVICE_ORDER=PCI_BUS_ID; its default is a guess at their speed.
    cards = tuple(sorted(answers.devices, key=lambda card: (card.pci_bus_id or "~", card.index)))
    visible, note = _visible(cards, scene.asker.environment("CUDA_VISIBLE_DEVICES"))
    devices: list[Device] = []
    problems: list[str] = [note] if note else []
    for position, card in enumerate(visible):
        if "handle" in card.errors:
            problems.append(f"NVIDIA: GPU {card.index} does not answer ({card.errors['handle']}).")
            continue
        device, worries = _card(scene, card, answers.driver, position)
        devices.append(device)
        problems.extend(worries)
    return Found(devices=tuple(devices), problems=tuple(problems))


def _card(scene: Scene, card: NvmlDevice, driver: str | None, position: int) -> tuple[Device, list[str]]:
    book = EvidenceBook()
    name = book.first("name", Answer("NVML", card.name)) or "NVIDIA GPU"
    unified = _UNIFIED.search(name) is not None and not card.total_bytes
    total, free, worries = _shared_memory(scene, card, book) if unified else _own_memory(card, name, book)
    if card.mig_enabled:
        book.note(
            "name", "NVML MIG mode", "enabled", "memory is the whole card's; CUDA sees one instance of it"
        )
    row = match_device(name, scene.table, memory_bytes=total)
    if row is None and unified:  # "Orin (nvgpu)" is every Orin; the board knows which
        row = match_device(scene.asker.text("/proc/device-tree/model") or "", scene.table, memory_bytes=total)
    bandwidth = book.first(
        "bandwidth_gb_per_s",
        Answer("NVML bus width × memory clock × 2", _bandwidth(card)),
        Answer("device table", row.bandwidth_gb_per_s if row else None, row.name if row else None),
    )
    margin, rule = _margin(total, unified, card.display_active)
    book.first("margin_bytes", Answer(rule, margin))
    capability = card.compute_capability
    return Device(
        id=f"cuda{position}",
        kind=DeviceKind.GPU,
        name=name,
        backend="cuda",
        vendor="NVIDIA",
        total_bytes=total,
        free_bytes=free,
        margin_bytes=margin,
        unified=unified,
        bandwidth_gb_per_s=bandwidth,
        compute_capability=None if capability is None else f"{capability[0]}.{capability[1]}",
        driver=driver,
        address=card.uuid,
        holders=_holders(scene.asker, card),
        evidence=book.entries(),
    ), worries


def _own_memory(card: NvmlDevice, name: str, book: EvidenceBook) -> tuple[int | None, int | None, list[str]]:
    """Total, free and what is odd about them, of a card with memory of its own."""
    worries: list[str] = []
    total, free = plausible_bytes(card.total_bytes) or None, plausible_bytes(card.free_bytes)
    if total is not None and free is not None and free > total:
        told = f"{format_bytes(free)} free of {format_bytes(total)}"
        worries.append(f"NVIDIA: {name} reports {told}, which is not believed.")
        free = None
    refusal = card.errors.get("memory")
    if refusal is not None:
        worries.append(f"NVIDIA: {name} does not tell its memory ({refusal}).")
    total = book.first("total_bytes", Answer("NVML total", total, refusal))
    return total, book.first("free_bytes", Answer("NVML free", free, refusal)), worries


def _shared_memory(
    scene: Scene, card: NvmlDevice, book: EvidenceBook
) -> tuple[int | None, int | None, list[str]]:
    """The host's memory, for a chip that has none of its own."""
    nvml: Answer[int] = Answer("NVML", None, card.errors.get("memory"))
    total = book.first("total_bytes", nvml, Answer("host RAM", scene.host.total_bytes))
    free = book.first("free_bytes", nvml, Answer("host RAM available", scene.host.available_bytes))
    return total, free, []


def _margin(total: int | None, unified: bool, display_active: bool | None) -> tuple[int, str]:
    """What to leave alone on a card, and why so much."""
    if unified:
        return host_margin_bytes(total), HOST_MARGIN_RULE
    if display_active:
        return _DISPLAY_MARGIN_BYTES, "CUDA context, slack, a display"
    return CARD_MARGIN_BYTES, "CUDA context, slack"


def _bandwidth(card: NvmlDevice) -> float | None:
    """Peak in 10^9 bytes/s. NVML's memory clock is half the data rate for every memory type it is known for."""
    width, clock = card.bus_width_bits, card.max_memory_clock_mhz
    if width is None or clock is None or not 32 <= width <= 16_384 or not 100 <= clock <= 50_000:
        return None
    return round(width / 8 * clock * 2 / 1000, 1)


def _holders(asker: Asker, card: NvmlDevice) -> tuple[Holder, ...]:
    """Processes on the card, the largest first. A name comes from NVML, or from /proc where the pid is ours to see."""
    holders = [
        Holder(
            pid=process.pid,
            name=_base_name(process.name) or asker.text(f"/proc/{process.pid}/comm") or "unknown",
            bytes=plausible_bytes(process.bytes),
        )
        for process in card.processes
        if process.pid > 0  # WSL names processes of Windows with a 0
    ]
    return tuple(sorted(holders, key=lambda holder: -(holder.bytes or 0)))


def _base_name(path: str | None) -> str | None:
    return None if path is None else re.split(r"[/\\]", path)[-1] or None


def _visible(cards: tuple[NvmlDevice, ...], chosen: str | None) -> tuple[tuple[NvmlDevice, ...], str | None]:
    """The cards CUDA will show, in its order: CUDA_VISIBLE_DEVICES takes indices or UUIDs and ends at the first bad one."""
    if chosen is None:
        return cards, None
    picked: list[NvmlDevice] = []
    for part in (part.strip() for part in chosen.split(",")):
        match = next(
            (
                card
                for card in cards
                if part == str(card.index) or (part.startswith("GPU-") and (card.uuid or "").startswith(part))
            ),
            None,
        )
        if match is None:
            break
        picked.append(match)
    hidden = len(cards) - len(picked)
    note = f"NVIDIA: CUDA_VISIBLE_DEVICES={chosen!r} hides {hidden} of {len(cards)} GPUs." if hidden else None
    return tuple(picked), note


def _driver_is_there(asker: Asker, wsl: bool) -> bool:
    if asker.system == "Linux":
        return bool(asker.names("/proc/driver/nvidia")) or (
            wsl and any(name.startswith("libnvidia-ml") for name in asker.names("/usr/lib/wsl/lib"))
        )
    return asker.system == "Windows"


def _jetson(scene: Scene) -> Found:
    """A Tegra module whose JetPack has no NVML: named by its device tree, its memory is the host's."""
    compatible = scene.asker.text("/proc/device-tree/compatible") or ""
    soc = next((name for name in _TEGRA_CAPABILITY if f"nvidia,{name}" in compatible), None)
    if soc is None:
        return Found()
    book = EvidenceBook()
    model = scene.asker.text("/proc/device-tree/model")
    name = book.first("name", Answer("/proc/device-tree/model", model)) or "NVIDIA Jetson"
    row = match_device(name, scene.table, memory_bytes=scene.host.total_bytes)
    total = book.first("total_bytes", Answer("host RAM", scene.host.total_bytes))
    margin = host_margin_bytes(total)
    book.first("margin_bytes", Answer(HOST_MARGIN_RULE, margin))
    device = Device(
        id="cuda0",
        kind=DeviceKind.GPU,
        name=name,
        backend="cuda",
        vendor="NVIDIA",
        total_bytes=total,
        free_bytes=book.first("free_bytes", Answer("host RAM available", scene.host.available_bytes)),
        margin_bytes=margin,
        unified=True,
        bandwidth_gb_per_s=book.first(
            "bandwidth_gb_per_s",
            Answer("device table", row.bandwidth_gb_per_s if row else None, row.name if row else None),
        ),
        compute_capability=_TEGRA_CAPABILITY[soc],
        driver=_jetpack(scene.asker),
        evidence=book.entries(),
    )
    return Found(devices=(device,))


def _jetpack(asker: Asker) -> str | None:
    """The Linux for Tegra release, from a line like ``# R36 (release), REVISION: 4.3, …``."""
    match = re.search(r"R(\d+) \(release\), REVISION: ([\d.]+)", asker.text("/etc/nv_tegra_release") or "")
    return f"L4T {match.group(1)}.{match.group(2)}" if match else None


def _card_without_driver(asker: Asker) -> tuple[str, ...]:
    """Say so when a card is there that only lacks NVIDIA's driver (nouveau cannot compute)."""
    if asker.system != "Linux":
        return ()
    for card in asker.names("/sys/class/drm"):
        if re.fullmatch(r"card\d+", card) and asker.text(f"/sys/class/drm/{card}/device/vendor") == "0x10de":
            return ("NVIDIA: a GPU is there, but NVIDIA's driver is not loaded, so it cannot be used.",)
    return ()
