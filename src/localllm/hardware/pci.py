"""Graphics cards as the kernel lists them under /sys/class/drm, and what a PCI id is called."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from msgspec import Struct

from localllm.core.errors import HardwareError
from localllm.hardware.asking import Asker
from localllm.hardware.assets import asset_path
from localllm.hardware.parsing import to_int

AMD, INTEL, NVIDIA = 0x1002, 0x8086, 0x10DE

_AMD_NAMES = ("/usr/share/libdrm/amdgpu.ids", "/opt/amdgpu/share/libdrm/amdgpu.ids")


class Card(Struct, frozen=True):
    """One card: its sysfs folder, PCI slot (``0000:03:00.0``) and ids; ``driver`` is the kernel's (``amdgpu``)."""

    folder: str
    slot: str
    vendor: int
    device: int
    revision: int | None
    driver: str | None

    @property
    def device_folder(self) -> str:
        return f"{self.folder}/device"


class KnownCard(Struct, frozen=True):
    """A row of ``assets/pci_devices.csv``."""

    name: str
    unified: bool


def drm_cards(asker: Asker, vendor: int) -> Iterator[Card]:
    """The cards of one vendor, in the kernel's order."""
    names = [name for name in asker.names("/sys/class/drm") if re.fullmatch(r"card\d{1,4}", name)]
    for name in sorted(names, key=lambda name: int(name[4:])):
        folder = f"/sys/class/drm/{name}"
        if to_int(asker.text(f"{folder}/device/vendor"), base=16) != vendor:
            continue
        device = to_int(asker.text(f"{folder}/device/device"), base=16)
        if device is None:
            continue
        driver = asker.target(f"{folder}/device/driver")
        yield Card(
            folder=folder,
            slot=(asker.target(f"{folder}/device") or name).rsplit("/", 1)[-1],
            vendor=vendor,
            device=device,
            revision=to_int(asker.text(f"{folder}/device/revision"), base=16),
            driver=None if driver is None else driver.rsplit("/", 1)[-1],
        )


def known_card(card: Card) -> KnownCard | None:
    """The shipped name of a card; a row without a revision is for all of them."""
    try:
        rows = list(csv.DictReader(asset_path("pci_devices.csv").read_text(encoding="utf-8").splitlines()))
    except HardwareError:
        return None
    for row in rows:
        same = int(row["vendor"], 16) == card.vendor and int(row["device"], 16) == card.device
        if same and (not row["revision"] or int(row["revision"], 16) == card.revision):
            return KnownCard(name=row["name"], unified=row["unified"] == "1")
    return None


def libdrm_name(asker: Asker, card: Card) -> str | None:
    """AMD's marketing name from libdrm's list: lines of ``744C,<tab>C8,<tab>AMD Radeon RX 7900 XTX``."""
    for path in _AMD_NAMES:
        for line in (asker.text(path) or "").splitlines():
            parts = [part.strip() for part in line.split(",", 2)]
            ids = [to_int(part, base=16) for part in parts[:2]]
            if len(parts) == 3 and ids == [card.device, card.revision]:
                return parts[2]
    return None
