"""A program that asks NVIDIA's management library everything once and prints the answers as JSON.

``python -m localllm.hardware.nvml_answers``. It is a process of its own because the driver of a GPU that fell off the
bus can block a caller for ever: this one can be left behind. What one call does not support is absent from its device
and named in ``errors``; the driver as a whole failing is ``error``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec
from msgspec import Struct

Result = TypeVar("Result")


class NvmlProcess(Struct, frozen=True):
    """A process on a GPU. ``bytes`` None = not told (WSL, WDDM)."""

    pid: int
    bytes: int | None = None
    name: str | None = None


class NvmlDevice(Struct, frozen=True, kw_only=True):
    """One GPU as NVML describes it; ``None`` = not supported, with the reason in ``errors``."""

    index: int
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    total_bytes: int | None = None
    free_bytes: int | None = None
    used_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    bus_width_bits: int | None = None
    max_memory_clock_mhz: int | None = None
    display_active: bool | None = None
    mig_enabled: bool | None = None
    processes: tuple[NvmlProcess, ...] = ()
    errors: dict[str, str] = {}


class NvmlAnswers(Struct, frozen=True, kw_only=True):
    """What the whole driver said."""

    error: str | None = None
    driver: str | None = None
    devices: tuple[NvmlDevice, ...] = ()


def ask_nvml() -> NvmlAnswers:
    """Ask every GPU everything that detection uses."""
    try:
        import pynvml
    except ImportError:
        return NvmlAnswers(error="nvidia-ml-py is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return NvmlAnswers(error=str(error))
    try:
        count = pynvml.nvmlDeviceGetCount()
        return NvmlAnswers(
            driver=_text(pynvml.nvmlSystemGetDriverVersion()),
            devices=tuple(_device(index) for index in range(count)),
        )
    except pynvml.NVMLError as error:
        return NvmlAnswers(error=str(error))


def _device(index: int) -> NvmlDevice:
    import pynvml

    errors: dict[str, str] = {}

    def ask(what: str, call: Callable[[], Result]) -> Result | None:
        try:
            return call()
        except (pynvml.NVMLError, UnicodeDecodeError) as error:
            errors[what] = str(error)
            return None

    handle = ask("handle", lambda: pynvml.nvmlDeviceGetHandleByIndex(index))
    if handle is None:
        return NvmlDevice(index=index, errors=errors)
    memory = ask("memory", lambda: pynvml.nvmlDeviceGetMemoryInfo(handle))
    capability = ask("compute_capability", lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle))
    processes: dict[int, NvmlProcess] = {}
    for running in (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
    ):
        for found in ask("processes", partial(running, handle)) or ():
            name = ask("process name", partial(pynvml.nvmlSystemGetProcessName, found.pid))
            processes[found.pid] = NvmlProcess(
                pid=found.pid, bytes=found.usedGpuMemory, name=None if name is None else _text(name)
            )
    errors.pop("process name", None)
    return NvmlDevice(
        index=index,
        name=ask("name", lambda: _text(pynvml.nvmlDeviceGetName(handle))),
        uuid=ask("uuid", lambda: _text(pynvml.nvmlDeviceGetUUID(handle))),
        pci_bus_id=ask("pci_bus_id", lambda: _text(pynvml.nvmlDeviceGetPciInfo(handle).busId)),
        total_bytes=None if memory is None else int(memory.total),
        free_bytes=None if memory is None else int(memory.free),
        used_bytes=None if memory is None else int(memory.used),
        compute_capability=None if capability is None else (int(capability[0]), int(capability[1])),
        bus_width_bits=ask("bus_width", lambda: int(pynvml.nvmlDeviceGetMemoryBusWidth(handle))),
        max_memory_clock_mhz=ask(
            "memory_clock", lambda: int(pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM))
        ),
        display_active=ask("display_active", lambda: bool(pynvml.nvmlDeviceGetDisplayActive(handle))),
        mig_enabled=ask("mig_mode", lambda: bool(pynvml.nvmlDeviceGetMigMode(handle)[0])),
        processes=tuple(processes.values()),
        errors=errors,
    )


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(ask_nvml()))
