"""A person's way through the command line, with a real service behind it: every step is one process, as in a shell."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_gguf import CHATML_TEMPLATE, write_tiny_gguf


@dataclass(frozen=True)
class Shell:
    """Runs ``localllm`` in a home of its own. ``env`` is the whole environment."""

    env: dict[str, str]

    def __call__(
        self, *arguments: str, stdin: str = "", exit_code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-m", "localllm", *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            env=self.env,
            timeout=110,
            check=False,
        )
        assert done.returncode == exit_code, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    def json(self, *arguments: str, kind: str, exit_code: int = 0) -> Any:
        envelope = json.loads(self(*arguments, "--json", exit_code=exit_code).stdout)
        assert (envelope["version"], envelope["kind"]) == (1, kind)
        return envelope["data"]


@pytest.fixture
def shell(isolated_home: Path) -> Iterator[Shell]:
    """A shell whose service, if one was started, is stopped at the end."""
    env = {**os.environ, "LOCALLLM_SERVER_PORT": "0", "LOCALLLM_ENGINE_THREADS": "1", "NO_COLOR": "1"}
    runs = Shell(env)
    yield runs
    if runs.json("status", kind="status", exit_code=_status_code(runs))["running"]:
        runs("stop", "--drain", "0")


def _status_code(shell: Shell) -> int:
    done = subprocess.run(
        [sys.executable, "-m", "localllm", "status"],
        env=shell.env,
        capture_output=True,
        timeout=60,
        check=False,
    )
    return done.returncode


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    return write_tiny_gguf(tmp_path / "Tiny-Llama-F32.gguf", "llama", chat_template=CHATML_TEMPLATE)


def test_what_works_without_a_service_starts_none(shell: Shell, tiny: Path) -> None:
    assert "memory" in shell("hw").stdout
    assert shell.json("fit", str(tiny), kind="fit")["rows"]
    assert "RTX 4090" in shell("fit", str(tiny), "--simulate", "RTX 4090").stdout
    assert "localllm start" in shell("ps", exit_code=5).stderr
    assert shell.json("status", kind="status", exit_code=5)["running"] is False
    assert "server.port" in shell("config", "show").stdout


def test_import_look_and_remove(shell: Shell, tiny: Path, isolated_home: Path) -> None:
    assert "The store is empty" in shell("list").stderr
    imported = shell("import", str(tiny))
    assert imported.stdout == "Imported tiny-llama:F32.\n"
    assert "localllm run tiny-llama:F32" in imported.stderr
    (model,) = shell.json("list", kind="models")["models"]
    assert (model["name"], model["architecture"], model["loaded"]) == ("tiny-llama:F32", "llama", False)
    assert re.search(r"^tiny-llama:F32 .* chat", shell("list").stdout, re.MULTILINE)
    shown = shell("show", "tiny-llama").stdout
    assert "trained context   2048 tokens" in shown
    assert shell("show", "tiny-llama", "--template").stdout.strip() == CHATML_TEMPLATE.strip()
    assert "is what was stored" in shell("show", "tiny-llama", "--verify").stderr
    (blob,) = (isolated_home / "localllm" / "data" / "models" / "blobs").iterdir()
    blob.chmod(0o600)
    blob.write_bytes(b"x" * blob.stat().st_size)
    assert "its SHA-256 differs" in shell("show", "tiny-llama", "--verify", exit_code=8).stderr
    blob.write_bytes(tiny.read_bytes())
    assert shell.json("fit", "tiny-llama", "--context", "1k", kind="fit")["context_length"] == 1024
    assert "Removed tiny-llama:F32" in shell("rm", "tiny-llama", "-y").stdout
    assert shell.json("list", kind="models")["models"] == []


def test_mistakes_are_worded_and_leave_the_service_up(shell: Shell, tiny: Path, tmp_path: Path) -> None:
    shell("import", str(tiny))
    unknown = shell("show", "tiny-lama", exit_code=4).stderr
    assert unknown == "Error: The model 'tiny-lama' does not exist here.\nDid you mean tiny-llama:F32?\n"
    assert shell.json("show", "tiny-lama", kind="error", exit_code=4)["code"] == "model_not_found"
    assert "is not a model name" in shell("show", "../x", exit_code=2).stderr
    page = tmp_path / "page.gguf"
    page.write_text("<!DOCTYPE html><html></html>")
    assert "HTML page" in shell("import", str(page), exit_code=8).stderr
    assert "There is no file" in shell("import", str(tmp_path / "absent.gguf"), exit_code=4).stderr
    other = write_tiny_gguf(tmp_path / "other.gguf", "llama", n_layer=2)
    assert "--name" in shell("import", str(other), "--name", "tiny-llama", exit_code=1).stderr
    assert "already runs at http://" in shell("serve", exit_code=3).stderr
    assert "is not loaded" in shell("unload", "tiny-llama", exit_code=4).stderr
    assert shell.json("status", kind="status")["running"] is True
    assert "tiny-llama:F32" in shell("list").stdout


def test_a_broken_configuration_stops_the_service_and_nothing_else(shell: Shell, isolated_home: Path) -> None:
    config = isolated_home / "localllm" / "config.toml"
    config.parent.mkdir()
    config.write_text("[server]\nprot = 1\n")
    refused = shell("serve", exit_code=2).stderr
    assert f"{config}:2: unknown setting 'server.prot'." in refused
    assert "Did you mean server.port?" in refused
    assert f"{config}:2" in shell("start", exit_code=5).stderr
    assert shell("list", exit_code=2).stderr == refused
    assert "Warning:" in shell("config", "show").stderr
    report = shell.json("doctor", kind="doctor", exit_code=1)
    assert {(check["name"], check["state"]) for check in report["checks"]} >= {
        ("configuration", "failed"),
        ("service", "failed"),
    }
    assert config.read_text() == "[server]\nprot = 1\n"


def test_an_open_port_without_keys_is_refused(shell: Shell) -> None:
    assert "server.api_keys is empty" in shell("serve", "--host", "0.0.0.0", exit_code=2).stderr


def test_a_remote_service_needs_its_key(shell: Shell, isolated_home: Path) -> None:
    shell("start")
    url = shell.json("status", kind="status")["url"]
    assert "admin key" in shell("ps", "--host", url, exit_code=10).stderr
    assert "not valid" in shell("ps", "--host", url, "--key", "wrong", exit_code=10).stderr
    key = (isolated_home / "localllm" / "state" / "admin.key").read_text().strip()
    assert shell.json("ps", "--host", url, "--key", key, kind="ps") == {"instances": [], "requests": []}
    assert shell.json("--host", url, "--key", key, "list", kind="models") == {"models": []}
    assert "No localllm service answers" in shell("ps", "--host", "127.0.0.1:1", exit_code=5).stderr


def test_doctor_and_logs(shell: Shell) -> None:
    report = shell.json("doctor", kind="doctor")
    assert {check["state"] for check in report["checks"]} <= {"ok", "warning"}
    for line in shell("logs", "-n", "5").stdout.splitlines():
        assert json.loads(line)["message"]


@pytest.mark.real_model
def test_demo_answers_with_its_figures_and_the_model_stays_useful(shell: Shell) -> None:
    demo = shell("demo")
    answer, figures = demo.stdout.rstrip("\n").rsplit("\n", 1)
    assert len(answer.split()) >= 4
    assert re.search(
        r"tok/s · TTFT .* · \d+ prompt tokens .*· \d+ answered · context \d+/\d+ · memory", figures
    )
    assert "/v1" in demo.stderr
    asked = shell("run", "gemma3-270m", "What is the capital of Japan?", "--temperature", "0", "-v")
    assert "Tokyo" in asked.stdout
    assert "cached" in asked.stderr
    (instance,) = shell.json("ps", kind="ps")["instances"]
    assert (instance["model"], instance["phase"]) == ("gemma3-270m:Q4_K_M", "ready")
    assert "is loaded" in shell("rm", "gemma3-270m", "-y", exit_code=1).stderr
    piped = json.loads(
        shell("run", "gemma3-270m", "--max-tokens", "5", "--json", stdin="Count to ten.").stdout
    )["data"]
    assert piped["figures"]["completion_tokens"] <= 5
    assert "There is no prompt" in shell("run", "gemma3-270m", exit_code=2).stderr
    shell("unload", "gemma3-270m")
    assert shell.json("ps", kind="ps")["instances"] == []


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="no engine is installed: pip install xllamacpp")
def test_a_load_for_a_purpose_is_planned_measured_and_learned_from(
    shell: Shell, tmp_path: Path, isolated_home: Path
) -> None:
    tiny = write_tiny_gguf(tmp_path / "Tiny-Llama-F32.gguf", "llama", context_length=4096)
    shell("import", str(tiny))
    loaded = shell.json("load", "tiny-llama", "--profile", "batch", kind="instance")
    assert (loaded["context_length"], loaded["parallel"]) == (4096, 16)
    (shown,) = shell.json("ps", kind="ps")["instances"]
    assert shown["planned_bytes"] > 0 and shown["measured_bytes"] > 0
    assert "planned" in shell("ps").stdout

    residuals = json.loads((isolated_home / "localllm" / "data" / "residuals.json").read_text())
    by_part = {seen["part"]: seen for seen in residuals}
    assert by_part.keys() >= {"weights", "kv", "compute"}
    assert by_part["kv"]["measured_bytes"] == by_part["kv"]["planned_bytes"]

    longer = shell("load", "tiny-llama", "--context", "900k").stdout
    assert "Note: The model was trained on 4096 tokens" in longer
    assert shell.json("ps", kind="ps")["instances"][0]["planned_bytes"] < 1 << 30


def test_a_port_that_is_taken_has_its_own_exit_code(shell: Shell) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = Shell({**shell.env, "LOCALLLM_SERVER_PORT": str(other.getsockname()[1])})
        assert "in use" in taken("start", exit_code=6).stderr
