"""Which build of llama-cpp-python fits a machine: pure rules, with their reasons.

Prebuilt wheels exist for the CPU, for some CUDA versions and for Metal (the project's own wheel index); everything else
is built from source with the flags of llama.cpp's ``docs/build.md``. CUDA runtimes run on drivers of the same or a newer
version, so the newest index at or below the driver's is taken.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from msgspec import Struct

from localllm.core.errors import BadRequest
from localllm.core.machine import Device, DeviceKind, Machine

WHEEL_INDEX = "https://abetlen.github.io/llama-cpp-python/whl"
CUDA_INDEXES: tuple[tuple[int, int], ...] = ((12, 5), (12, 4), (12, 3), (12, 2), (12, 1))


_CUDA_OF_DRIVER: tuple[tuple[int, tuple[int, int]], ...] = (
    (580, (13, 0)),
    (570, (12, 8)),
    (560, (12, 6)),
    (555, (12, 5)),
    (550, (12, 4)),
    (545, (12, 3)),
    (535, (12, 2)),
    (530, (12, 1)),
    (525, (12, 0)),
)
"""Newest CUDA that an NVIDIA driver branch runs: NVIDIA's CUDA toolkit release notes, table of driver versions."""


def cuda_of_driver(driver: str | None) -> tuple[int, int] | None:
    """The CUDA version that a driver such as ``550.54.14`` supports; None when it is older than CUDA 12 or unknown."""
    branch = (driver or "").split(".")[0]
    if not branch.isdigit():
        return None
    return next((cuda for first, cuda in _CUDA_OF_DRIVER if int(branch) >= first), None)


class Backend(StrEnum):
    CPU = "cpu"
    CUDA = "cuda"
    METAL = "metal"
    VULKAN = "vulkan"
    ROCM = "rocm"
    SYCL = "sycl"


CMAKE_FLAGS: dict[Backend, tuple[str, ...]] = {
    Backend.CPU: ("-DGGML_NATIVE=ON",),
    Backend.CUDA: ("-DGGML_CUDA=ON",),
    Backend.METAL: ("-DGGML_METAL=ON",),
    Backend.VULKAN: ("-DGGML_VULKAN=ON",),
    Backend.ROCM: ("-DGGML_HIP=ON",),
    Backend.SYCL: ("-DGGML_SYCL=ON", "-DCMAKE_C_COMPILER=icx", "-DCMAKE_CXX_COMPILER=icpx"),
}
BUILD_TOOLS: dict[Backend, tuple[str, ...]] = {
    Backend.CPU: ("cc",),
    Backend.CUDA: ("cc", "nvcc"),
    Backend.METAL: ("cc",),
    Backend.VULKAN: ("cc", "glslc"),
    Backend.ROCM: ("cc", "hipcc"),
    Backend.SYCL: ("icx", "icpx"),
}


class Attempt(Struct, frozen=True):
    """One way to get the build. ``index`` names a wheel index for ``prebuilt``; ``cmake`` are flags for ``source``."""

    kind: Literal["prebuilt", "source"]
    index: str | None = None
    cmake: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()


class BuildChoice(Struct, frozen=True):
    """What to install: the attempts in order, and one sentence that says why this backend."""

    backend: Backend
    reason: str
    attempts: tuple[Attempt, ...]


def choose_build(
    machine: Machine,
    *,
    backend: Backend | None = None,
    source_only: bool = False,
    cuda_version: tuple[int, int] | None = None,
    python: tuple[int, int] = (3, 12),
) -> BuildChoice:
    """The build for ``machine``; a given ``backend`` is taken as asked.

    ``cuda_version`` is what the NVIDIA driver supports. A prebuilt wheel comes first where one exists: it is there in
    seconds. ``source_only`` asks for a native build at once, which may use instructions (AVX-512, AMX) that the wheels leave out.

    Raises:
        BadRequest: Metal was asked for on a machine that is no Mac.
    """
    chosen, reason = (backend, "Asked for.") if backend else _backend_for(machine)
    if chosen is Backend.METAL and machine.system.lower() not in ("darwin", "macos"):
        raise BadRequest("Metal exists on macOS only.", param="backend")
    source = Attempt("source", cmake=CMAKE_FLAGS[chosen], needs=BUILD_TOOLS[chosen])
    prebuilt = None if source_only else _prebuilt(chosen, cuda_version, python)
    return BuildChoice(chosen, reason, tuple(a for a in (prebuilt, source) if a is not None))


def _backend_for(machine: Machine) -> tuple[Backend, str]:
    for device in machine.gpus:
        found = _backend_of(device)
        if found is not None:
            return found, f"{device.name} is best used through {_LABELS[found]}."
    return Backend.CPU, "No GPU was found, so the build is for the CPU."


_LABELS = {
    Backend.CUDA: "CUDA",
    Backend.METAL: "Metal",
    Backend.ROCM: "ROCm",
    Backend.VULKAN: "Vulkan",
    Backend.SYCL: "SYCL",
    Backend.CPU: "the CPU",
}


def _backend_of(device: Device) -> Backend | None:
    if device.kind is not DeviceKind.GPU:
        return None
    if device.backend in ("cuda", "metal", "rocm", "vulkan", "sycl"):
        return Backend(device.backend)
    vendor = (device.vendor or "").lower()
    by_vendor = {
        "nvidia": Backend.CUDA,
        "apple": Backend.METAL,
        "amd": Backend.VULKAN,
        "intel": Backend.VULKAN,
    }
    return by_vendor.get(vendor)


def _prebuilt(backend: Backend, cuda: tuple[int, int] | None, python: tuple[int, int]) -> Attempt | None:
    """The wheel index for a backend, or None where none exists (the index has wheels for Python 3.10 to 3.12 on GPUs)."""
    if backend is Backend.CPU:
        return Attempt("prebuilt", index=f"{WHEEL_INDEX}/cpu")
    if python > (3, 12):
        return None
    if backend is Backend.METAL:
        return Attempt("prebuilt", index=f"{WHEEL_INDEX}/metal")
    if backend is Backend.CUDA and cuda is not None:
        fitting = next((v for v in CUDA_INDEXES if v <= cuda), None)
        if fitting is not None:
            return Attempt("prebuilt", index=f"{WHEEL_INDEX}/cu{fitting[0]}{fitting[1]}")
    return None
