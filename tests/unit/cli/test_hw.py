from __future__ import annotations

import json
from pathlib import Path

import pytest

from localllm.cli.main import main


def test_this_machine_as_text_and_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hw"]) == 0
    assert "cpu  " in capsys.readouterr().out
    assert main(["hw", "--json"]) == 0
    machine = json.loads(capsys.readouterr().out)["data"]
    assert machine["devices"][0]["id"] == "cpu"


def test_another_machine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hw", "--simulate", "2x RTX 3090"]) == 0
    out = capsys.readouterr().out
    assert "cuda1  GeForce RTX 3090" in out
    assert "simulated" in out
    assert main(["hw", "--simulate", "RTX 9999 XYZ"]) == 1
    assert "is known" in capsys.readouterr().err
    assert main(["hw", "--devices"]) == 0
    assert "GeForce RTX 4090" in capsys.readouterr().out


def test_explain_names_sources_and_an_override_wins(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["hw", "--explain", "--set", "cpu.free_bytes=3GiB"]) == 0
    out = capsys.readouterr().out
    assert "3.0 GiB free" in out
    assert "* override" in out
    assert main(["hw", "--set", "nonsense"]) == 1
    assert "DEVICE.FIELD=VALUE" in capsys.readouterr().err


def test_answers_are_saved_and_replayed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "machine.json"
    assert main(["hw", "--save", str(file)]) == 0
    first = capsys.readouterr()
    assert str(file) in first.err
    assert main(["hw", "--replay", str(file)]) == 0
    assert capsys.readouterr().out.splitlines()[2] == first.out.splitlines()[2]
    assert main(["hw", "--replay", str(tmp_path / "absent.json")]) == 1


def test_an_override_can_be_set_for_good(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "hardware.overrides", "cpu.free_bytes=3GiB"]) == 0
    assert main(["hw"]) == 0
    assert "3.0 GiB free" in capsys.readouterr().out
    assert main(["hw", "--set", "cpu.free_bytes=5GiB"]) == 0
    assert "5.0 GiB free" in capsys.readouterr().out


def test_the_margin_is_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "engine.memory_margin_bytes", "777MiB"]) == 0
    assert main(["hw"]) == 0
    assert "777.0 MiB left alone" in capsys.readouterr().out
    assert main(["hw", "--set", "cpu.margin_bytes=5MiB"]) == 0
    assert "5.0 MiB left alone" in capsys.readouterr().out
