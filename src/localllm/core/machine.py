"""What the machine is and what is free on it: frozen readings, no probing (that is ``hardware/``)."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct


class DeviceKind(StrEnum):
    CPU = "cpu"
    GPU = "gpu"


class Evidence(Struct, frozen=True):
    """One source that was asked: what it said, and whether its answer was the one used (for ``hw --explain``)."""

    field: str
    source: str
    value: str
    used: bool
    note: str | None = None


class Holder(Struct, frozen=True):
    """A process that holds memory on a device. ``bytes`` None = the driver does not say."""

    pid: int
    name: str
    bytes: int | None


class Device(Struct, frozen=True, kw_only=True):
    """One place memory can be planned on. The CPU with its RAM is a device too (id ``cpu``).

    ``total_bytes`` is physical; ``free_bytes`` what is free now; ``margin_bytes`` what the planner leaves alone;
    ``usable_bytes`` = max(0, free - margin). ``unified``: the memory is the host's own (Apple, APU, Jetson, GB10) and
    must not be counted twice. ``bandwidth_gb_per_s`` is 10^9 bytes per second. ``cores`` are physical and usable by this
    process, ``performance_cores`` the fast ones where there are two kinds; ``address`` is how the driver finds a GPU again
    (a UUID or a sysfs folder). None = unknown.
    """

    id: str
    kind: DeviceKind
    name: str
    backend: Literal["cuda", "rocm", "vulkan", "metal", "sycl", "cpu"] | None = None
    vendor: str | None = None
    total_bytes: int | None
    free_bytes: int | None
    margin_bytes: int
    unified: bool = False
    bandwidth_gb_per_s: float | None = None
    compute_capability: str | None = None
    driver: str | None = None
    address: str | None = None
    cores: int | None = None
    performance_cores: int | None = None
    logical_cores: int | None = None
    isa: tuple[str, ...] = ()
    holders: tuple[Holder, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    @property
    def usable_bytes(self) -> int:
        """Bytes the planner may use now; 0 when the free amount is unknown."""
        return 0 if self.free_bytes is None else max(0, self.free_bytes - self.margin_bytes)


class Machine(Struct, frozen=True, kw_only=True):
    """One reading of the whole machine. ``devices[0]`` is always the CPU. ``problems`` are probes that failed, worded."""

    hostname: str
    system: str
    devices: tuple[Device, ...]
    container: str | None = None
    memory_limit_bytes: int | None = None
    simulated: bool = False
    problems: tuple[str, ...] = ()

    @property
    def cpu(self) -> Device:
        return self.devices[0]

    @property
    def gpus(self) -> tuple[Device, ...]:
        return tuple(d for d in self.devices if d.kind is DeviceKind.GPU)


class DeviceSample(Struct, frozen=True, kw_only=True):
    """One live reading of a device; None = this vendor or driver does not tell.

    ``throttled`` names what holds the clocks down; an empty string says that nothing does.
    """

    id: str
    name: str
    kind: DeviceKind
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    utilisation_percent: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    clock_mhz: float | None = None
    throttled: str | None = None
