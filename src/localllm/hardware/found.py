"""What a probe brings home: devices, and in words what went wrong."""

from __future__ import annotations

from msgspec import Struct

from localllm.core.device_table import DeviceRow
from localllm.core.machine import Device, Evidence
from localllm.hardware.asking import Asker
from localllm.hardware.memory import HostMemory


class Found(Struct, frozen=True):
    """The outcome of one probe. ``host_evidence`` is what it learned about the CPU's own memory."""

    devices: tuple[Device, ...] = ()
    problems: tuple[str, ...] = ()
    host_evidence: tuple[Evidence, ...] = ()


class Scene(Struct, frozen=True, kw_only=True):
    """What every probe is given: whom to ask, the host's memory as limited by its cgroups, and the known devices."""

    asker: Asker
    host: HostMemory
    table: tuple[DeviceRow, ...]
    wsl: bool = False
