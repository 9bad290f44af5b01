from __future__ import annotations

import json

import pytest

from localllm.cli.main import main
from localllm.settings.paths import Paths


def test_show_says_where_each_value_came_from(
    paths: Paths, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALLLM_SERVER_PORT", "1234")
    assert main(["config", "set", "log.level", "debug"]) == 0
    capsys.readouterr()
    assert main(["config", "show"]) == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
    assert lines["server.port"][1:] == ["1234", "LOCALLLM_SERVER_PORT"]
    assert lines["log.level"][1:] == ["debug", f"{paths.config_file}:2"]
    assert lines["server.host"][1:] == ["127.0.0.1", "default"]
    assert main(["config", "show", "--changed", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert [entry["key"] for entry in data["entries"]] == ["server.port", "log.level"]


def test_show_one_and_a_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "show", "engine.kv_type"]) == 0
    out = capsys.readouterr().out
    assert "Type of the KV cache." in out
    assert "LOCALLLM_ENGINE_KV_TYPE" in out
    assert main(["config", "show", "ui"]) == 0
    assert "ui.theme" in capsys.readouterr().out


def test_set_and_unset(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "server.port", "8080"]) == 0
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "localllm restart" in captured.err
    assert "port = 8080" in paths.config_file.read_text()
    assert main(["config", "unset", "server.port"]) == 0
    assert "port" not in paths.config_file.read_text()


def test_set_says_when_the_environment_beats_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOCALLLM_SERVER_PORT", "1")
    assert main(["config", "set", "server.port", "2"]) == 0
    assert "LOCALLLM_SERVER_PORT is set in this terminal and beats it" in capsys.readouterr().err


def test_a_bad_value_is_refused(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "set", "server.port", "high"]) == 2
    assert "a whole number from 0 to 65535" in capsys.readouterr().err
    assert not paths.config_file.exists()


def test_a_broken_file_is_shown_around_and_kept(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    paths.config_file.parent.mkdir(parents=True)
    paths.config_file.write_text("[server\n")
    assert main(["config", "show"]) == 0
    captured = capsys.readouterr()
    assert "server.port" in captured.out
    assert f"Warning: {paths.config_file}:1: not valid TOML" in captured.err
    assert main(["config", "set", "server.port", "1"]) == 2
    assert paths.config_file.read_text() == "[server\n"


def test_path(paths: Paths, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "path"]) == 0
    assert capsys.readouterr().out.strip() == str(paths.config_file)
