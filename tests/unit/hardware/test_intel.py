from __future__ import annotations

import pytest

from localllm.core.units import GIB
from localllm.hardware.devices import load_device_table
from localllm.hardware.found import Found, Scene
from localllm.hardware.intel import probe_intel
from localllm.hardware.memory import HostMemory
from tests.support.machines import linux

CARD = "/sys/class/drm/card0"


def probe(device: str, texts: dict[str, str] | None = None, *, driver: str = "xe", tiles: int = 0) -> Found:
    names = {"/sys/class/drm": ["card0"], f"{CARD}/device": [f"tile{number}" for number in range(tiles)]}
    asker = linux(
        {f"{CARD}/device/vendor": "0x8086", f"{CARD}/device/device": device, **(texts or {})},
        names=names,
        targets={f"{CARD}/device": "/x/0000:03:00.0", f"{CARD}/device/driver": f"/drivers/{driver}"},
    )
    host = HostMemory(32 * GIB, 20 * GIB)
    return probe_intel(Scene(asker=asker, host=host, table=load_device_table()))


def window(size: int) -> dict[str, str]:
    lines = ["0x0 0x0 0x0", "0x0 0x0 0x0", f"{0x6000000000:#x} {0x6000000000 + size - 1:#x} 0x14220c"]
    return {f"{CARD}/device/resource": "\n".join(lines)}


def total(found: Found) -> int | None:
    return found.devices[0].total_bytes


def test_tiles_add_up() -> None:
    sizes = {f"{CARD}/device/tile{n}/physical_vram_size_bytes": str(8 * GIB) for n in range(2)}
    assert total(probe("0x56a0", sizes, tiles=2)) == 16 * GIB


def test_out_of_tree_i915_tells_its_size() -> None:
    assert total(probe("0x56a0", {f"{CARD}/lmem_total_bytes": str(16 * GIB)}, driver="i915")) == 16 * GIB


@pytest.mark.parametrize(
    ("device", "bar", "size"),
    [
        ("0x56a0", 8 * GIB, 8 * GIB),  # the A770 with 8 GB
        ("0xe20b", 16 * GIB, 12 * GIB),  # windows are powers of two
        ("0x56a0", 256 << 20, 16 * GIB),  # no resizable BAR: the window tells nothing
    ],
)
def test_the_size_is_the_models_or_the_windows_whichever_is_less(device: str, bar: int, size: int) -> None:
    assert total(probe(device, window(bar), driver="i915")) == size


@pytest.mark.parametrize(
    "resource", ["", "a b c\n" * 3, "0x0 0x0 0x0\n" * 2, "0x0 0x0 0x0\n0x0 0x0 0x0\n0x9 0x1 0x0"]
)
def test_a_window_that_makes_no_sense_tells_nothing(resource: str) -> None:
    assert total(probe("0x56a0", {f"{CARD}/device/resource": resource}, driver="i915")) == 16 * GIB


def test_old_graphics_in_a_processor_are_left_out_with_a_reason() -> None:
    found = probe("0x3e92", driver="i915")
    assert (found.devices, found.problems) == ((), ())
    assert "slower than the processor" in (found.host_evidence[0].note or "")


def test_a_card_lent_to_a_virtual_machine_is_named() -> None:
    found = probe("0x56a0", driver="vfio-pci")
    assert found.devices == ()
    assert "vfio-pci" in found.problems[0]


def test_shared_graphics_are_bounded_by_what_the_host_has() -> None:
    (device,) = probe("0x64a0").devices
    assert device.unified
    assert (device.total_bytes, device.free_bytes) == (24 * GIB, 20 * GIB)
