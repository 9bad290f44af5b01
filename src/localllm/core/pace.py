"""How fast one device moves weights: bandwidth it really reaches, the cost of a layer, and prefill arithmetic.

Fitted to measured runs of Llama-2-7B Q4_0 where the device table has them (facts: llama.cpp discussions 4167, 10879,
15013, 15021), else typical for the device's generation. A device nobody measured gets a wider range.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, structs

from localllm.core.device_table import DeviceClass, DeviceRow, match_device
from localllm.core.machine import Device, DeviceKind

_REFERENCE_BYTES: Final = 3_751_600_000
_REFERENCE_LAYERS: Final = 32
_REFERENCE_PARAMETERS: Final = 6_738_000_000


class Generation(Struct, frozen=True):
    """What devices of one make have in common.

    ``efficiency``: share of the peak bandwidth a large matrix reaches. ``layer_us``: launches and synchronisation
    per layer. ``tflops_per_gb_per_s``: prefill arithmetic per unit of bandwidth. ``q4_k``: time of a K-quant byte
    against a Q4_0 byte. ``fits_layers``: devices differ in the cost of a layer rather than in efficiency.
    ``at_least_typical``: old runs of single devices are below what llama.cpp reaches on them now.
    """

    name: str
    efficiency: float
    layer_us: float
    tflops_per_gb_per_s: float
    q4_k: float = 1.06
    fits_layers: bool = False
    at_least_typical: bool = False


_GENERATIONS: Final[tuple[tuple[str, Generation], ...]] = (
    (r"\b(gb10|dgx spark)\b", Generation("Blackwell, unified memory", 0.82, 35, 0.14)),
    (r"\b(b200|b300|h100|h200|gh200|a100|a30)\b", Generation("datacenter HBM", 0.64, 60, 0.035)),
    (r"\bv100\b", Generation("Volta", 0.60, 60, 0.043)),
    (r"\bp100\b", Generation("Pascal HBM", 0.33, 120, 0.014)),
    (r"\b(gtx 10\d\d|titan x|tesla p\d+|quadro p\d+)", Generation("Pascal", 0.46, 130, 0.03)),
    (r"\b(gtx 16\d\d)", Generation("Turing without tensor cores", 0.82, 50, 0.012)),
    (r"\b(rtx 20\d\d|titan rtx|tesla t4|quadro rtx)", Generation("Turing", 0.72, 60, 0.065)),
    (r"\b(rtx 50\d\d|rtx pro .*blackwell)", Generation("Blackwell", 0.82, 30, 0.12)),
    (r"\b(rtx 40\d\d|l4|l40s?|rtx \d000 ada)\b", Generation("Ada", 0.86, 30, 0.17)),
    (r"\b(rtx 30\d\d|rtx a\d{3,4}|a10|a16|a2|a40)\b", Generation("Ampere", 0.84, 40, 0.09)),
    (r"\b(jetson)\b", Generation("Jetson", 0.72, 100, 0.07)),
    (r"\b(rx 9\d\d\d|r9700)", Generation("RDNA 4", 0.85, 75, 0.08, 1.0, at_least_typical=True)),
    (r"\b(rx 7\d\d\d|w7\d00)", Generation("RDNA 3", 0.85, 75, 0.05, 1.0, at_least_typical=True)),
    (r"\b(rx 6\d\d\d|w6\d00)", Generation("RDNA 2", 0.80, 75, 0.035, 1.0, at_least_typical=True)),
    (r"\b(rx 5\d\d\d?|vega|radeon vii)", Generation("GCN", 0.50, 80, 0.02)),
    (r"\b(instinct|mi\d+)", Generation("CDNA", 0.45, 90, 0.03)),
    (r"\b(ryzen|radeon|steam deck)", Generation("AMD integrated", 0.78, 60, 0.05)),
    (r"\b(arc b|arc pro b)", Generation("Battlemage", 0.62, 60, 0.025)),
    (r"\b(arc a)", Generation("Alchemist", 0.40, 60, 0.025)),
    (r"\b(core ultra|iris|intel)", Generation("Intel integrated", 0.60, 100, 0.04)),
    (r"\bapple m1|\bm1\b", Generation("Apple M1", 0.87, 190, 0.018, 1.18, fits_layers=True)),
    (r"\bapple m2|\bm2\b", Generation("Apple M2", 0.87, 130, 0.022, 1.10, fits_layers=True)),
    (r"\bapple m[345]|\bm[345]\b", Generation("Apple M3 or newer", 0.87, 130, 0.025, 1.06, fits_layers=True)),
)
_UNKNOWN_GPU: Final = Generation("unknown", 0.65, 80, 0.04)
_CPU: Final = Generation("CPU", 0.50, 8, 0.004, 1.02)
_TFLOPS_PER_CORE: Final = 0.025
"""A core with AVX2 or NEON on mixed quants."""


class Pace(Struct, frozen=True, kw_only=True):
    """One device's speed. ``measured``: fitted to a run of this very device; ``source`` says from where."""

    name: str
    bandwidth_gb_per_s: float
    efficiency: float
    layer_us: float
    prefill_tflops: float
    q4_k: float
    measured: bool
    source: str

    @property
    def bytes_per_s(self) -> float:
        return self.bandwidth_gb_per_s * 1e9 * self.efficiency


def pace_of(device: Device, table: Sequence[DeviceRow] = ()) -> Pace | None:
    """The pace of a device by its name and its own bandwidth; None when that is unknown in both places."""
    row = match_device(device.name, table, memory_bytes=device.total_bytes) if table else None
    if device.kind is DeviceKind.CPU:
        return _cpu_pace(device, row)
    bandwidth = device.bandwidth_gb_per_s or (row.bandwidth_gb_per_s if row else None)
    if bandwidth is None:
        return None
    return _gpu_pace(device.name, bandwidth, row)


def pace_of_row(row: DeviceRow) -> Pace:
    """The pace of a device that is only known from the table."""
    if row.device_class is DeviceClass.CPU:
        return _generic_pace(row.name, row.bandwidth_gb_per_s, _CPU, "peak bandwidth of its memory")
    return _gpu_pace(row.name, row.bandwidth_gb_per_s, row)


def _cpu_pace(device: Device, row: DeviceRow | None) -> Pace | None:
    bandwidth = device.bandwidth_gb_per_s or (row.bandwidth_gb_per_s if row else None)
    if bandwidth is None:
        return None
    pace = _generic_pace(device.name, bandwidth, _CPU, "bandwidth of its memory")
    if device.cores:
        pace = structs.replace(pace, prefill_tflops=_TFLOPS_PER_CORE * device.cores)
    return pace


def _gpu_pace(name: str, bandwidth: float, row: DeviceRow | None) -> Pace:
    generation = generation_of(f"{name} {row.name if row else ''}")
    if row is None or row.decode_tokens_per_s is None:
        return _generic_pace(name, bandwidth, generation, f"typical for {generation.name}")
    efficiency, layer_us = _fitted(1 / row.decode_tokens_per_s, row.bandwidth_gb_per_s, generation)
    tflops = row.prefill_tflops
    if tflops is None and row.prefill_tokens_per_s is not None:
        tflops = row.prefill_tokens_per_s * 2 * _REFERENCE_PARAMETERS / 1e12
    return Pace(
        name=name,
        bandwidth_gb_per_s=bandwidth,
        efficiency=efficiency,
        layer_us=layer_us,
        prefill_tflops=tflops or bandwidth * generation.tflops_per_gb_per_s,
        q4_k=generation.q4_k,
        measured=True,
        source=f"fitted to a llama.cpp run on {row.name}",
    )


def _fitted(seconds: float, bandwidth: float, generation: Generation) -> tuple[float, float]:
    """(efficiency, layer_us) that explain the reference run; one of the two is the generation's."""
    peak = bandwidth * 1e9
    if generation.fits_layers:
        rest = seconds - _REFERENCE_BYTES / (peak * generation.efficiency)
        return generation.efficiency, max(rest / _REFERENCE_LAYERS * 1e6, 20.0)
    rest = max(seconds - _REFERENCE_LAYERS * generation.layer_us * 1e-6, 1e-4)
    least = generation.efficiency if generation.at_least_typical else 0.1
    return min(max(_REFERENCE_BYTES / rest / peak, least), 0.95), generation.layer_us


def _generic_pace(name: str, bandwidth: float, generation: Generation, source: str) -> Pace:
    return Pace(
        name=name,
        bandwidth_gb_per_s=bandwidth,
        efficiency=generation.efficiency,
        layer_us=generation.layer_us,
        prefill_tflops=bandwidth * generation.tflops_per_gb_per_s,
        q4_k=generation.q4_k,
        measured=False,
        source=source,
    )


def generation_of(name: str) -> Generation:
    """The generation a device name belongs to."""
    lowered = name.lower()
    for pattern, generation in _GENERATIONS:
        if re.search(pattern, lowered):
            return generation
    return _UNKNOWN_GPU
