from __future__ import annotations

from pathlib import Path

import pytest

import localllm
from localllm.core.errors import HardwareError
from localllm.hardware.assets import asset_path


def test_the_table_is_found_in_a_checkout() -> None:
    assert asset_path("devices.csv").is_file()


def test_a_wheel_carries_it_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "localllm"
    (package / "assets").mkdir(parents=True)
    (package / "assets" / "devices.csv").write_text("inside")
    monkeypatch.setattr(localllm, "__file__", str(package / "__init__.py"))
    assert asset_path("devices.csv") == package / "assets" / "devices.csv"


def test_an_incomplete_installation_is_said() -> None:
    with pytest.raises(HardwareError, match=r"missing\.csv"):
        asset_path("missing.csv")
