"""This machine with the measured bandwidth of its memory, which is measured seldom and remembered in a file.

The test takes a moment and is only ever slowed by what else runs, so it is repeated a few times on different occasions
and the best result counts; after a month it starts over.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from localllm.core.errors import ProbeFailed
from localllm.core.machine import Machine
from localllm.core.units import GIB
from localllm.hardware.bandwidth import Bandwidth, measure_bandwidth
from localllm.hardware.detect import detect
from localllm.hardware.evidence import overrule
from localllm.hardware.overrides import apply_overrides

FILE_NAME = "memory_bandwidth.json"
SOURCE = "measured: copy and read"

_OCCASIONS = 3
_APART_S = 600.0
_MONTH_S = 30 * 86_400.0
# The test needs an eighth of this; a machine with less free has better uses for it.
_LEAST_FREE_BYTES = GIB

log = logging.getLogger(__name__)


class Remembered(Struct, frozen=True, kw_only=True):
    """The best measurement of one machine. ``at`` is the time of the last, ``since`` of the first, in Unix seconds."""

    machine: str
    gb_per_s: float
    occasions: int
    since: float
    at: float


def detect_here(
    *,
    cache_dir: Path,
    overrides: Mapping[str, str] | None = None,
    deadline_s: float = 3.0,
    measure: Callable[[], Bandwidth] = measure_bandwidth,
    now: Callable[[], float] = time.time,
) -> Machine:
    """``detect``, with the memory bandwidth measured on this machine. Never raises; blocks for the deadline at most,
    and on a few occasions a quarter of a second more."""
    machine = detect(deadline_s=deadline_s)
    kept = _refreshed(cache_dir / FILE_NAME, machine, measure, now())
    if kept is not None:
        machine = with_bandwidth(machine, kept.gb_per_s, note=f"best of {kept.occasions}")
    return apply_overrides(machine, overrides or {})


def with_bandwidth(machine: Machine, gb_per_s: float, *, note: str | None = None) -> Machine:
    """The machine with the measured bandwidth of its CPU's memory, in 10^9 bytes per second."""
    cpu = overrule(machine.cpu, "bandwidth_gb_per_s", SOURCE, gb_per_s, note=note)
    return structs.replace(machine, devices=(cpu, *machine.gpus))


def _refreshed(
    path: Path, machine: Machine, measure: Callable[[], Bandwidth], now: float
) -> Remembered | None:
    """What is remembered of this machine, measured again where that is due."""
    name = f"{machine.hostname} {machine.cpu.name} {machine.cpu.cores}"
    kept = _read(path)
    if kept is not None and (kept.machine != name or not 0 <= now - kept.since < _MONTH_S):
        kept = None
    is_due = kept is None or (kept.occasions < _OCCASIONS and now - kept.at >= _APART_S)
    if not is_due or (machine.cpu.free_bytes or 0) < _LEAST_FREE_BYTES:
        return kept
    try:
        found = measure().gb_per_s
    except ProbeFailed as error:
        log.info("memory bandwidth is not measured", extra={"reason": str(error)})
        return kept
    kept = Remembered(
        machine=name,
        gb_per_s=max(found, kept.gb_per_s) if kept else found,
        occasions=kept.occasions + 1 if kept else 1,
        since=kept.since if kept else now,
        at=now,
    )
    _write(path, kept)
    return kept


def _read(path: Path) -> Remembered | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Remembered)
    except (OSError, msgspec.MsgspecError):
        return None


def _write(path: Path, kept: Remembered) -> None:
    """Replace the file in one step. A cache that cannot be written costs the next measurement, nothing else."""
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_bytes(msgspec.json.encode(kept))
        part.replace(path)
    except OSError as error:
        log.info("memory bandwidth is not remembered", extra={"reason": error.strerror})
