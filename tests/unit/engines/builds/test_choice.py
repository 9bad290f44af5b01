"""Which build a machine gets, and why."""

from __future__ import annotations

import pytest

from localllm.core.errors import BadRequest
from localllm.core.machine import Device, DeviceKind, Machine
from localllm.engines.builds.choice import Backend, choose_build

CPU = Device(
    id="cpu", kind=DeviceKind.CPU, name="CPU", total_bytes=1 << 34, free_bytes=1 << 33, margin_bytes=0
)


def machine(*gpus: Device, system: str = "Linux") -> Machine:
    return Machine(hostname="box", system=system, devices=(CPU, *gpus))


def gpu(vendor: str, backend: str | None = None) -> Device:
    return Device(
        id="gpu0",
        kind=DeviceKind.GPU,
        name=f"A {vendor} card",
        vendor=vendor,
        backend=backend,  # type: ignore[arg-type]
        total_bytes=1 << 33,
        free_bytes=1 << 33,
        margin_bytes=0,
    )


def test_a_machine_without_a_gpu_gets_the_cpu_build_prebuilt_first() -> None:
    choice = choose_build(machine())
    assert choice.backend is Backend.CPU
    assert [a.kind for a in choice.attempts] == ["prebuilt", "source"]
    assert choice.attempts[0].index is not None
    assert choice.attempts[0].index.endswith("/cpu")
    assert "No GPU" in choice.reason


@pytest.mark.parametrize(
    ("driver", "index"),
    [
        ((12, 4), "cu124"),
        ((12, 8), "cu125"),
        ((13, 0), "cu125"),
        ((12, 1), "cu121"),
        ((11, 8), None),
        (None, None),
    ],
)
def test_cuda_takes_the_newest_index_the_driver_can_run(
    driver: tuple[int, int] | None, index: str | None
) -> None:
    choice = choose_build(machine(gpu("NVIDIA", "cuda")), cuda_version=driver)
    prebuilt = [a.index.rsplit("/", 1)[1] for a in choice.attempts if a.index]
    assert prebuilt == ([index] if index else [])
    assert choice.attempts[-1].cmake == ("-DGGML_CUDA=ON",)


@pytest.mark.parametrize(
    ("device", "backend", "flag"),
    [
        (gpu("AMD", "rocm"), Backend.ROCM, "-DGGML_HIP=ON"),
        (gpu("AMD"), Backend.VULKAN, "-DGGML_VULKAN=ON"),
        (gpu("Intel"), Backend.VULKAN, "-DGGML_VULKAN=ON"),
        (gpu("Intel", "sycl"), Backend.SYCL, "-DGGML_SYCL=ON"),
    ],
)
def test_others_are_built_from_source_with_their_flag(device: Device, backend: Backend, flag: str) -> None:
    choice = choose_build(machine(device))
    assert choice.backend is backend
    assert [a.kind for a in choice.attempts] == ["source"]
    assert flag in choice.attempts[0].cmake
    assert device.name in choice.reason


def test_a_python_without_gpu_wheels_goes_straight_to_the_source() -> None:
    choice = choose_build(machine(gpu("NVIDIA", "cuda")), cuda_version=(12, 4), python=(3, 13))
    assert [a.kind for a in choice.attempts] == ["source"]


def test_what_was_asked_for_is_taken_and_metal_needs_a_mac() -> None:
    assert choose_build(machine(), backend=Backend.VULKAN).backend is Backend.VULKAN
    assert [a.kind for a in choose_build(machine(), source_only=True).attempts] == ["source"]
    assert choose_build(machine(system="Darwin"), backend=Backend.METAL).attempts[0].kind == "prebuilt"
    with pytest.raises(BadRequest):
        choose_build(machine(), backend=Backend.METAL)
