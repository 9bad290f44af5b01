from __future__ import annotations

import csv

from localllm.hardware.assets import asset_path
from localllm.hardware.devices import load_device_table


def test_every_row_of_the_shipped_table_is_read_and_named_once() -> None:
    lines = list(csv.DictReader(asset_path("devices.csv").read_text(encoding="utf-8").splitlines()))
    names = [row.name for row in load_device_table()]
    assert names == [line["name"] for line in lines]
    assert len(set(names)) == len(names) > 150


def test_the_pci_list_is_in_hexadecimal_and_names_what_the_table_knows() -> None:
    for line in csv.DictReader(asset_path("pci_devices.csv").read_text(encoding="utf-8").splitlines()):
        assert int(line["vendor"], 16) in (0x1002, 0x8086)
        assert 0 < int(line["device"], 16) < 0x10000
        assert line["unified"] in ("0", "1")
        assert line["name"]
