"""The GPU of Apple silicon. Its memory is the host's; what it may use is Metal's working-set limit."""

from __future__ import annotations

import re
import sys

import msgspec

from localllm.core.device_table import match_device
from localllm.core.machine import Device, DeviceKind
from localllm.core.units import GIB, MIB, format_bytes
from localllm.hardware.asking import Asker
from localllm.hardware.evidence import Answer, EvidenceBook
from localllm.hardware.found import Found, Scene
from localllm.hardware.metal_answers import MetalAnswers
from localllm.hardware.parsing import colon_values, plausible_bytes, to_int

# The limit leaves the system its share already; this is for the buffers Metal makes beside ours.
METAL_MARGIN_BYTES = 256 * MIB
_MODEL = re.compile(r'"model" = "([^"]{1,80})"')
_CORES = re.compile(r'"gpu-core-count" = (\d{1,3})', re.ASCII)
# The key "In use system memory (driver)" comes first and is another figure: the closing quote tells them apart.
_IN_USE = re.compile(r'"In use system memory"=(\d{1,15})', re.ASCII)

IOREG = ("ioreg", "-r", "-d", "1", "-w", "0", "-c", "IOAccelerator")


def probe_apple(scene: Scene) -> Found:
    """Find the GPU of a Mac with Apple silicon."""
    asker = scene.asker
    if asker.system != "Darwin" or asker.architecture != "arm64":
        return Found()
    registry = asker.output("ioreg", IOREG) or ""
    book = EvidenceBook()
    chip = colon_values(asker.output("sysctl cpu", ("sysctl", "hw", "machdep.cpu"))).get(
        "machdep.cpu.brand_string"
    )
    model = _MODEL.search(registry)
    name = book.first(
        "name", Answer("ioreg model", model.group(1) if model else None), Answer("sysctl", chip)
    )
    cores = _CORES.search(registry)
    core_count = int(cores.group(1)) if cores else None
    full_name = f"{name or 'Apple GPU'} ({core_count}-core GPU)" if core_count else name or "Apple GPU"
    row = match_device(full_name, scene.table)
    limit = _working_set(asker, scene.host.total_bytes, book)
    in_use = in_use_bytes(registry)
    left = None if limit is None else max(0, limit - (in_use or 0))
    free = book.lowest(
        "free_bytes",
        Answer(
            "limit − in use by the GPU",
            left,
            f"in use: {'unknown' if in_use is None else format_bytes(in_use)}",
        ),
        Answer("host RAM available", scene.host.available_bytes),
    )
    book.first("margin_bytes", Answer("Metal's own buffers", METAL_MARGIN_BYTES))
    device = Device(
        id="metal0",
        kind=DeviceKind.GPU,
        name=full_name,
        backend="metal",
        vendor="Apple",
        total_bytes=limit,
        free_bytes=free,
        margin_bytes=METAL_MARGIN_BYTES,
        unified=True,
        bandwidth_gb_per_s=book.first(
            "bandwidth_gb_per_s",
            Answer("device table", row.bandwidth_gb_per_s if row else None, row.name if row else None),
        ),
        address="IOAccelerator",
        cores=core_count,
        evidence=book.entries(),
    )
    return Found(devices=(device,))


def in_use_bytes(registry: str) -> int | None:
    """What all processes together hold on the GPU, from ``ioreg``'s PerformanceStatistics."""
    match = _IN_USE.search(registry)
    return plausible_bytes(int(match.group(1))) if match else None


def default_working_set_bytes(total_bytes: int) -> int:
    """macOS's default limit: two thirds of the memory below 36 GiB, three quarters from there on.

    Matches what Metal reports on 8 to 192 GiB (10.7 of 16, 21.3 of 32, 27 of 36, 48 of 64, 72 of 96 GiB); recent
    versions of macOS allow more from 128 GiB up, which only Metal itself can tell.
    """
    return total_bytes * 3 // 4 if total_bytes >= 36 * GIB else total_bytes * 2 // 3


def _working_set(asker: Asker, total_bytes: int | None, book: EvidenceBook) -> int | None:
    text = asker.output("metal", (sys.executable, "-m", "localllm.hardware.metal_answers"))
    try:
        answers = msgspec.json.decode(text, type=MetalAnswers) if text else MetalAnswers()
    except msgspec.MsgspecError as error:
        answers = MetalAnswers(error=str(error))
    wired = to_int(
        colon_values(asker.output("sysctl iogpu", ("sysctl", "iogpu"))).get("iogpu.wired_limit_mb")
    )
    believed = plausible_bytes(answers.recommended_bytes)
    if believed is not None and total_bytes is not None and believed > total_bytes:
        believed = None
    return book.first(
        "total_bytes",
        Answer("Metal recommendedMaxWorkingSetSize", believed or None, answers.error),
        Answer(
            "sysctl iogpu.wired_limit_mb", wired * MIB if wired and wired > 0 else None, "0 = the default"
        ),
        Answer(
            "default: 2/3 below 36 GiB, else 3/4",
            None if total_bytes is None else default_working_set_bytes(total_bytes),
        ),
    )
