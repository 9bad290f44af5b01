"""What may be used where: the memory the planner plans on, per device, and whether an estimate stays within it.

A budget is what is free now (never what is built in), less a margin, less what the ledger has promised to other
models. Devices with unified memory draw from the host's, which is counted once.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from localllm.core.machine import Device, Machine
from localllm.core.memory import CPU_ID, MemoryEstimate


class Shortage(Struct, frozen=True):
    """A device that an estimate asks too much of."""

    device_id: str
    needed_bytes: int
    available_bytes: int

    @property
    def missing_bytes(self) -> int:
        return self.needed_bytes - self.available_bytes


class Budget(Struct, frozen=True):
    """Usable bytes by device id; ``unified`` names the GPUs whose memory is the host's own."""

    bytes_by_device: dict[str, int]
    unified: frozenset[str]

    def of(self, device_id: str) -> int:
        return self.bytes_by_device.get(device_id, 0)

    def shortage(self, estimate: MemoryEstimate) -> Shortage | None:
        """The device that lacks most, or None when everything fits."""
        worst: Shortage | None = None
        for device in estimate.devices:
            needed = device.total
            if device.device_id == CPU_ID:
                needed += sum(d.total for d in estimate.devices if d.device_id in self.unified)
            found = Shortage(device.device_id, needed, self.of(device.device_id))
            if found.missing_bytes > 0 and (worst is None or found.missing_bytes > worst.missing_bytes):
                worst = found
        return worst

    def fits(self, estimate: MemoryEstimate) -> bool:
        return self.shortage(estimate) is None

    def spare_share(self, estimate: MemoryEstimate) -> float:
        """The smallest part of any used device's budget that stays free (0.05 = 5 %)."""
        shares = [
            1 - device.total / self.of(device.device_id)
            for device in estimate.devices
            if device.weights and self.of(device.device_id)
        ]
        return min(shares, default=0.0)


def budget_of(machine: Machine, available_bytes: Mapping[str, int] | None = None) -> Budget:
    """The machine's budget; ``available_bytes`` (the ledger's) replaces a device's own reading."""
    given = available_bytes or {}
    return Budget(
        {device.id: max(0, given.get(device.id, device.usable_bytes)) for device in machine.devices},
        frozenset(gpu.id for gpu in machine.gpus if gpu.unified),
    )


def usable_gpus(machine: Machine, budget: Budget) -> tuple[Device, ...]:
    """The GPUs that have anything to give."""
    return tuple(gpu for gpu in machine.gpus if budget.of(gpu.id) > 0)
