from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localllm.core.device_table import DeviceClass, DeviceRow, match_device, parse_device_table
from localllm.core.errors import HardwareError
from localllm.core.units import GIB
from localllm.hardware.devices import load_device_table

TABLE = load_device_table()


@pytest.mark.parametrize(
    ("name", "row"),
    [
        ("NVIDIA GeForce RTX 4060 Laptop GPU", "GeForce RTX 4060 Laptop"),
        ("NVIDIA GeForce RTX 4060", "GeForce RTX 4060"),
        ("NVIDIA GeForce RTX 4060 Ti", "GeForce RTX 4060 Ti"),
        ("Nvidia RTX 4060 Mobile", "GeForce RTX 4060 Laptop"),
        ("rtx4090", "GeForce RTX 4090"),
        ("rtx-3080ti-12gb", "GeForce RTX 3080 Ti"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"),
        ("NVIDIA H100 PCIe", "H100 PCIe"),
        ("NVIDIA H100 NVL", "H100 NVL"),
        ("NVIDIA A100-SXM4-80GB", "A100 80GB SXM"),
        ("NVIDIA A100-SXM4-40GB", "A100 40GB"),
        ("NVIDIA GB10", "DGX Spark (GB10)"),
        ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", "RTX PRO 6000 Blackwell"),
        ("NVIDIA Jetson AGX Orin Developer Kit", "Jetson AGX Orin"),
        ("AMD Radeon 8060S Graphics", "Ryzen AI Max+ 395 (Strix Halo, Radeon 8060S)"),
        ("Intel(R) Arc(TM) A770 Graphics", "Arc A770 16GB"),
        ("Apple M3 Max (40-core GPU)", "Apple M3 Max (40-core GPU)"),
        ("Apple M4 Max 12P+4E+40GPU", "Apple M4 Max (40-core GPU)"),
        ("Apple M3 Max", "Apple M3 Max (30-core GPU)"),
        ("Raspberry Pi 5 Model B Rev 1.4", "Raspberry Pi 5"),
        ("Raspberry Pi 4 Model B Rev 1.5", "Raspberry Pi 4"),
    ],
)
def test_names_of_drivers_and_people_find_their_row(name: str, row: str) -> None:
    found = match_device(name, TABLE)
    assert found is not None
    assert found.name == row


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA RTX A5000 Laptop GPU",
        "NVIDIA GeForce GTX 1070 with Max-Q Design",
        "NVIDIA GeForce GTX 1650 Ti",
        "AMD Radeon RX 6500 XT",
        "Quadro RTX 8000",
        "",
        "CPU",
    ],
)
def test_a_product_without_a_row_takes_nobody_elses_figures(name: str) -> None:
    assert match_device(name, TABLE) is None


def test_memory_decides_between_rows_of_one_name() -> None:
    small = match_device("NVIDIA A100", TABLE, memory_bytes=40 * GIB)
    large = match_device("NVIDIA A100 80GB", TABLE)
    assert small is not None and large is not None
    assert (small.name, large.name) == ("A100 40GB", "A100 80GB PCIe")


def test_every_row_finds_itself() -> None:
    for row in TABLE:
        found = match_device(row.name, TABLE, memory_bytes=row.memory_bytes)
        assert found is not None, row.name
        assert found.bandwidth_gb_per_s == row.bandwidth_gb_per_s or found.memory_bytes == row.memory_bytes


def test_bandwidth_is_bus_width_times_data_rate() -> None:
    """A peak that the vendor rounds (Apple, HBM parts) may differ by 3 %, no more."""
    for row in TABLE:
        if row.bus_bits is not None and row.data_rate_gt_per_s is not None:
            assert row.bus_bits * row.data_rate_gt_per_s / 8 == pytest.approx(
                row.bandwidth_gb_per_s, rel=0.03
            )


def test_unknown_cells_are_none_and_units_are_bytes() -> None:
    row = next(r for r in TABLE if r.name == "GeForce RTX 2080")
    assert row == DeviceRow(
        name="GeForce RTX 2080",
        vendor="NVIDIA",
        device_class=DeviceClass.CONSUMER,
        memory_bytes=8 * GIB,
        memory_type="GDDR6",
        bus_bits=256,
        data_rate_gt_per_s=14.0,
        bandwidth_gb_per_s=448.0,
    )


@pytest.mark.parametrize(
    "line",
    [
        "RTX 1,,NVIDIA,consumer,8,GDDR6,256,14,,bus x rate,,,,,,",
        "RTX 1,,NVIDIA,toaster,8,GDDR6,256,14,1,bus x rate,,,,,,",
        "RTX 1,,NVIDIA,consumer,lots,GDDR6,256,14,1,bus x rate,,,,,,",
    ],
)
def test_a_damaged_row_is_named_by_its_line(line: str) -> None:
    header = (
        "name,aliases,vendor,device_class,memory_gib,memory_type,bus_bits,data_rate_gt_per_s,"
        "bandwidth_gb_per_s,bandwidth_basis,backend,decode_tokens_per_s,prefill_tokens_per_s,"
        "layer_overhead_us,prefill_tflops,notes\n"
    )
    with pytest.raises(HardwareError, match="line 2"):
        parse_device_table(header + line + "\n")


@given(st.text())
def test_any_text_is_a_name_or_nothing(name: str) -> None:
    found = match_device(name, TABLE)
    assert found is None or found in TABLE
