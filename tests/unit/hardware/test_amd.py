from __future__ import annotations

import pytest

from localllm.core.machine import Device
from localllm.hardware.amd import gfx_name, probe_amd
from localllm.hardware.detect import detect
from localllm.hardware.devices import load_device_table
from localllm.hardware.found import Found, Scene
from localllm.hardware.memory import HostMemory
from tests.support import machines
from tests.support.machines import linux

CARD = "/sys/class/drm/card0/device"


def probe(texts: dict[str, str], *, driver: str | None = "amdgpu") -> Found:
    targets = {CARD: "/sys/devices/pci0000:00/0000:03:00.0"}
    if driver is not None:
        targets[f"{CARD}/driver"] = f"/sys/bus/pci/drivers/{driver}"
    ids = {f"{CARD}/vendor": "0x1002", f"{CARD}/device": "0x744c", f"{CARD}/revision": "0xc8"}
    asker = linux({**ids, **texts}, names={"/sys/class/drm": ["card0"]}, targets=targets)
    return probe_amd(Scene(asker=asker, host=HostMemory(1 << 35, 1 << 34), table=load_device_table()))


def only(found: Found) -> Device:
    (device,) = found.devices
    return device


@pytest.mark.parametrize(
    ("version", "name"),
    [(110501, "gfx1151"), (110000, "gfx1100"), (90010, "gfx90a"), (90402, "gfx942"), (100306, "gfx1036")],
)
def test_kfd_versions_become_llvms_names(version: int, name: str) -> None:
    assert gfx_name(version) == name


def test_without_kfd_a_card_computes_with_vulkan() -> None:
    device = only(probe({f"{CARD}/mem_info_vram_total": "1000", f"{CARD}/mem_info_vram_used": "400"}))
    assert (device.id, device.backend) == ("vulkan0", "vulkan")
    assert device.name == "AMD Radeon RX 7900 XTX"  # by its PCI id: there is no libdrm here
    assert (device.total_bytes, device.free_bytes, device.bandwidth_gb_per_s) == (1000, 600, 960)


@pytest.mark.parametrize("used", ["2000", "", "-5", "x"])
def test_a_use_that_cannot_be_is_unknown(used: str) -> None:
    device = only(probe({f"{CARD}/mem_info_vram_total": "1000", f"{CARD}/mem_info_vram_used": used}))
    assert (device.total_bytes, device.free_bytes) == (1000, None)


@pytest.mark.parametrize("driver", [None, "radeon", "vfio-pci"])
def test_a_card_of_another_driver_is_named(driver: str | None) -> None:
    found = probe({}, driver=driver)
    assert found.devices == ()
    assert "0000:03:00.0 is not driven by amdgpu" in found.problems[0]


def test_a_card_the_table_does_not_have_gets_kfds_figures() -> None:
    raw = machines.answers("rx7900xtx_desktop")
    raw.texts["/sys/class/drm/card0/device/device"] = "0x7777"
    (device,) = detect(raw=raw).gpus
    assert device.name == "AMD gfx1100"
    assert device.bandwidth_gb_per_s == pytest.approx(384 / 8 * 1249 * 16 / 1000, abs=0.1)


def test_a_kfd_masked_by_a_container_reads_as_no_kfd() -> None:
    raw = machines.answers("rx7900xtx_desktop")
    for path in [path for path in raw.texts if path.endswith("/properties")]:
        del raw.texts[path]
    assert {gpu.backend for gpu in detect(raw=raw).gpus} == {"vulkan"}
