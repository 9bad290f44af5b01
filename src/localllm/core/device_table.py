"""The table of known devices: what memory, bandwidth and measured speed a GPU, SoC or CPU has by its name.

Pure: the parser takes the text of ``assets/devices.csv`` (``localllm.hardware.devices`` reads the file). The planner
takes per-device speed figures from it, and ``--simulate`` a machine that is not there.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from localllm.core.errors import HardwareError
from localllm.core.units import GIB


class DeviceClass(StrEnum):
    """What sort of device a row describes; ``unified`` shares the host's memory (Apple, APU, Jetson, GB10)."""

    CONSUMER = "consumer"
    LAPTOP = "laptop"
    WORKSTATION = "workstation"
    DATACENTER = "datacenter"
    UNIFIED = "unified"
    CPU = "cpu"


class DeviceRow(Struct, frozen=True, kw_only=True):
    """One known device. Empty cells of the table are ``None``.

    ``bandwidth_gb_per_s`` is the peak in 10^9 bytes per second. ``decode_tokens_per_s`` (tg128) and
    ``prefill_tokens_per_s`` (pp512) were measured with llama.cpp on Llama-2-7B Q4_0 with ``backend``;
    ``layer_overhead_us`` and ``prefill_tflops`` are fitted to them at a bandwidth efficiency of 0.87.
    """

    name: str
    aliases: tuple[str, ...] = ()
    vendor: str | None = None
    device_class: DeviceClass
    memory_bytes: int | None
    memory_type: str | None = None
    bus_bits: int | None = None
    data_rate_gt_per_s: float | None = None
    bandwidth_gb_per_s: float
    backend: str | None = None
    decode_tokens_per_s: float | None = None
    prefill_tokens_per_s: float | None = None
    layer_overhead_us: float | None = None
    prefill_tflops: float | None = None
    notes: str | None = None


def parse_device_table(text: str) -> tuple[DeviceRow, ...]:
    """Parse the CSV text of the device table.

    Raises:
        HardwareError: a row lacks its name, class or bandwidth, or a figure is not a number.
    """
    rows: list[DeviceRow] = []
    for number, cells in enumerate(csv.DictReader(io.StringIO(text)), start=2):
        try:
            rows.append(_row(cells))
        except (KeyError, ValueError, TypeError) as error:
            raise HardwareError(f"device table, line {number}: {error}") from error
    return tuple(rows)


def match_device(
    name: str, rows: Iterable[DeviceRow], *, memory_bytes: int | None = None
) -> DeviceRow | None:
    """Find the row that a driver's or a person's device name means, or ``None``.

    Every word of the row's name (or of an alias) must be in ``name``; the most specific row wins. A laptop GPU never
    gets the figures of the desktop card whose name it carries, nor a "Ti" those of the plain card. ``memory_bytes``
    decides between rows that differ only in their memory; what then is still open goes to the lower bandwidth.
    """
    wanted = _words(name)
    named = _MEMORY.search(name.lower())
    if memory_bytes is None and named is not None:
        memory_bytes = int(named.group(1)) * GIB
    best: tuple[tuple[int, float, float], DeviceRow] | None = None
    for row in rows:
        score = max(_score(wanted, label) for label in (row.name, *row.aliases))
        rank = (-score, _memory_distance(row, memory_bytes), row.bandwidth_gb_per_s)
        if score > 0 and (best is None or rank < best[0]):
            best = (rank, row)
    return None if best is None else best[1]


# Words that make another product of the same number: a row without them is not meant by a name with them.
_VARIANTS = frozenset(
    [
        "ti",
        "super",
        "xt",
        "xtx",
        "gre",
        "ultra",
        "pro",
        "max",
        "nano",
        "nx",
        "agx",
        "ada",
        "blackwell",
        "pcie",
        "sxm",
        "nvl",
        "sff",
        "laptop",
    ]
)
# Words that drivers and people add or leave out at will.
_NOISE = frozenset(
    [
        "nvidia",
        "geforce",
        "rtx",
        "gtx",
        "rx",
        "amd",
        "radeon",
        "intel",
        "arc",
        "apple",
        "tesla",
        "jetson",
        "gpu",
        "graphics",
        "generation",
        "edition",
        "workstation",
        "server",
        "developer",
        "kit",
        "design",
        "with",
    ]
)
_MEMORY = re.compile(r"\b(\d+)[\s-]?gi?b\b")
_GLUED = re.compile(r"(?:rtx|gtx|rx)?(\d{3,4})(ti|super|xt|xtx|gre)?")


def _words(text: str) -> tuple[str, ...]:
    """Split a device name into comparable words: ``"NVIDIA GeForce RTX 4060 Laptop GPU"`` → 4060, laptop."""
    lowered = re.sub(r"\((r|tm)\)", " ", text.lower())
    lowered = _MEMORY.sub(" ", lowered).replace("+", " plus ")
    # "RTX PRO 6000 Max-Q Workstation" is a desktop card with a lower power limit; any other Max-Q is a laptop's.
    lowered = lowered.replace("max-q", "" if "workstation" in lowered else "laptop").replace(
        "mobile", "laptop"
    )
    lowered = re.sub(r"\bsxm\d\b", "sxm", lowered)
    lowered = re.sub(r"(\d)gpu\b", r"\1 gpu", lowered)  # "12P+4E+40GPU"
    words: list[str] = []
    for word in re.findall(r"[a-z0-9]+", lowered):
        glued = _GLUED.fullmatch(word)  # "RTX4090", "4090Ti": as people type; drivers put the spaces in
        words.extend(part for part in (glued.groups() if glued else (word,)) if part)
    return tuple(word for word in words if word not in _NOISE)


def _score(wanted: tuple[str, ...], label: str) -> int:
    """How many words of the label stand together in the wanted name; 0 = another product."""
    cores = re.search(r"(\d+)-core gpu", label.lower())
    words = _words(label.split(" (")[0])
    size = len(words)
    if not words or not any(wanted[at : at + size] == words for at in range(len(wanted) - size + 1)):
        return 0
    extra = set(wanted) - set(words)
    if extra & _VARIANTS:
        return 0
    return 2 * size + (1 if cores and cores.group(1) in extra else 0)


def _memory_distance(row: DeviceRow, memory_bytes: int | None) -> float:
    if memory_bytes is None or row.memory_bytes is None:
        return 0.0
    return abs(row.memory_bytes - memory_bytes) / GIB


def _row(cells: Mapping[str, str]) -> DeviceRow:
    memory_gib = _number(cells["memory_gib"])
    bandwidth = _number(cells["bandwidth_gb_per_s"])
    if not cells["name"] or bandwidth is None:
        raise ValueError("a row needs a name and a bandwidth")
    bus_bits = _number(cells["bus_bits"])
    return DeviceRow(
        name=cells["name"],
        aliases=tuple(part for part in cells["aliases"].split("|") if part),
        vendor=cells["vendor"] or None,
        device_class=DeviceClass(cells["device_class"]),
        memory_bytes=None if memory_gib is None else int(memory_gib * GIB),
        memory_type=cells["memory_type"] or None,
        bus_bits=None if bus_bits is None else int(bus_bits),
        data_rate_gt_per_s=_number(cells["data_rate_gt_per_s"]),
        bandwidth_gb_per_s=bandwidth,
        backend=cells["backend"] or None,
        decode_tokens_per_s=_number(cells["decode_tokens_per_s"]),
        prefill_tokens_per_s=_number(cells["prefill_tokens_per_s"]),
        layer_overhead_us=_number(cells["layer_overhead_us"]),
        prefill_tflops=_number(cells["prefill_tflops"]),
        notes=cells["notes"] or None,
    )


def _number(cell: str) -> float | None:
    return float(cell) if cell else None
