"""Reads the shipped device table; what the rows mean and how names match is ``core.device_table``."""

from __future__ import annotations

from localllm.core.device_table import DeviceRow, parse_device_table
from localllm.hardware.assets import asset_path


def load_device_table() -> tuple[DeviceRow, ...]:
    """All known devices, in the order of ``assets/devices.csv``.

    Raises:
        HardwareError: the table is missing or damaged.
    """
    return parse_device_table(asset_path("devices.csv").read_text(encoding="utf-8"))
