"""A machine of given sizes: a CPU of 50 GB/s, and cards called RTX 4090 whatever they hold."""

from __future__ import annotations

from localllm.core.machine import Device, DeviceKind, Holder, Machine
from localllm.core.memory import CPU_ID
from localllm.core.units import GIB, MIB


def machine(
    ram_gib: float, *gpus_gib: float, unified: bool = False, holders: tuple[Holder, ...] = ()
) -> Machine:
    cpu = Device(
        id=CPU_ID,
        kind=DeviceKind.CPU,
        name="Test CPU",
        backend="cpu",
        total_bytes=int(ram_gib * GIB),
        free_bytes=int(ram_gib * GIB),
        margin_bytes=0,
        bandwidth_gb_per_s=50,
        cores=8,
    )
    gpus = tuple(
        Device(
            id=f"gpu{i}",
            kind=DeviceKind.GPU,
            name=f"RTX 4090 #{i}",
            backend="metal" if unified else "cuda",
            total_bytes=int(gib * GIB),
            free_bytes=int(gib * GIB),
            margin_bytes=400 * MIB,
            unified=unified,
            bandwidth_gb_per_s=1008,
            holders=holders,
        )
        for i, gib in enumerate(gpus_gib)
    )
    return Machine(hostname="test", system="linux", devices=(cpu, *gpus))
