"""Learning from loads: what the engine really allocated against what was planned, and the correction that follows.

Builds of llama.cpp differ in what they need for a step, drivers in what they keep. After each load the plan is laid
beside the engine's own log; the residuals are kept per device, backend and build (by the service), and the next plan
on the same ground is corrected by them. Pure: nothing is stored here.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Literal

from msgspec import Struct, structs

from localllm.core.engine_log import LoggedBuffer
from localllm.core.machine import Device
from localllm.core.memory import CPU_ID, DeviceEstimate, MemoryEstimate

Part = Literal["weights", "kv", "compute", "output"]
PARTS: Final[tuple[Part, ...]] = ("weights", "kv", "compute", "output")

MOST_OBSERVATIONS: Final = 20
"""Only the newest count: a driver or a kernel may have changed since."""

LEAST_TO_PLAN_LESS: Final = 3
"""Loads that must agree before less is planned than the formulas say: too little memory fails, too much only waits."""

WORTH_CORRECTING: Final = 0.005
LARGEST_FACTOR: Final = 2.0

_HOST: Final = re.compile(r"CPU|Host|host|BLAS|AMX")
_REPACKED: Final = re.compile(r"REPACK|AARCH64|AMX")
_INDEX: Final = re.compile(r"(\d+)$")


class Ground(Struct, frozen=True):
    """Where an observation holds: on this device, with this backend, in this build of the engine."""

    device_id: str
    backend: str
    build: str


class Observation(Struct, frozen=True, kw_only=True):
    """One part of one load on one device, in bytes; ``at`` is seconds since the epoch."""

    ground: Ground
    part: Part
    planned_bytes: int
    measured_bytes: int
    at: float

    @property
    def error_percent(self) -> float | None:
        """Positive: more was planned than needed; None when the engine allocated nothing."""
        if self.measured_bytes == 0:
            return None
        return (self.planned_bytes / self.measured_bytes - 1) * 100


def observe(
    estimate: MemoryEstimate,
    logged: Iterable[LoggedBuffer],
    gpus: Sequence[Device],
    *,
    build: str,
    at: float,
) -> tuple[Observation, ...]:
    """Lay a plan beside the engine's log. Parts that the log does not mention are left out.

    Copies that llama.cpp repacks for the CPU are not weights to plan for: their originals leave the memory.
    """
    measured: dict[tuple[str, Part], int] = {}
    for buffer in logged:
        device_id = _device_of(buffer.device, gpus)
        if device_id is None or _REPACKED.search(buffer.device):
            continue
        part: Part = "kv" if buffer.kind == "recurrent" else buffer.kind
        # scratch in pinned host memory belongs to the GPU's step, not to layers on the CPU
        measured[device_id, part] = measured.get((device_id, part), 0) + buffer.bytes
    found: list[Observation] = []
    for (device_id, part), size in measured.items():
        planned = next((d for d in estimate.devices if d.device_id == device_id), None)
        if planned is None:
            continue
        backend = next((gpu.backend for gpu in gpus if gpu.id == device_id), None) or "cpu"
        ground = Ground(device_id, backend, build)
        found.append(
            Observation(
                ground=ground, part=part, planned_bytes=getattr(planned, part), measured_bytes=size, at=at
            )
        )
    return tuple(found)


class Corrections(Struct, frozen=True):
    """Factors to multiply a plan's parts by: (device id, part) → measured over planned."""

    factors: dict[tuple[str, Part], float] = {}

    def applied(self, estimate: MemoryEstimate) -> MemoryEstimate:
        if not self.factors:
            return estimate
        return MemoryEstimate(tuple(self._device(device) for device in estimate.devices))

    def _device(self, device: DeviceEstimate) -> DeviceEstimate:
        changed = {
            part: round(getattr(device, part) * self.factors[device.device_id, part])
            for part in PARTS
            if (device.device_id, part) in self.factors
        }
        return structs.replace(device, **changed) if changed else device


def corrections_from(observations: Iterable[Observation], build_of: Mapping[str, str]) -> Corrections:
    """The median of the newest observations per device and part, where the build is the one that will load.

    ``build_of`` maps device id → build. Differences below half a percent are noise and are left alone.
    """
    ratios: dict[tuple[str, Part], list[tuple[float, float]]] = {}
    for seen in observations:
        if build_of.get(seen.ground.device_id) != seen.ground.build or not seen.planned_bytes:
            continue
        key = (seen.ground.device_id, seen.part)
        ratios.setdefault(key, []).append((seen.at, seen.measured_bytes / seen.planned_bytes))
    factors: dict[tuple[str, Part], float] = {}
    for key, values in ratios.items():
        newest = [ratio for _, ratio in sorted(values)[-MOST_OBSERVATIONS:]]
        factor = min(max(statistics.median(newest), 1 / LARGEST_FACTOR), LARGEST_FACTOR)
        if factor < 1 and len(newest) < LEAST_TO_PLAN_LESS:
            continue
        if abs(factor - 1) > WORTH_CORRECTING:
            factors[key] = factor
    return Corrections(factors)


def _device_of(name: str, gpus: Sequence[Device]) -> str | None:
    """The plan's device for an engine's buffer name: ``CUDA1`` → the second GPU, ``CUDA_Host`` → the CPU."""
    if _HOST.search(name):
        return CPU_ID
    index = _INDEX.search(name)
    place = int(index[1]) if index else 0
    return gpus[place].id if place < len(gpus) else None
