from __future__ import annotations

import sys
from pathlib import Path

import pytest

from localllm.core.launch import LaunchPlan
from localllm.engines.llama_server.command import binary_command, find_launcher, host_command
from localllm.engines.llama_server.server_plan import (
    batch_of,
    cpu_expert_override,
    http_threads,
    pooling_of,
    total_context,
)

PLAN = LaunchPlan(model_path="/m.gguf", context_length=1000, parallel=3, threads=2)


@pytest.fixture
def binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ``llama-server`` that is alone on PATH."""
    path = tmp_path / "llama-server"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    return path


def flag(plan: LaunchPlan, name: str) -> str:
    arguments = binary_command("llama-server", plan, "key").arguments
    return arguments[arguments.index(name) + 1]


def test_the_bundled_server_comes_before_one_on_path(binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    launcher = find_launcher(None)
    assert launcher is not None
    assert launcher.bundled
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = find_launcher(None)
    assert found is not None
    assert found.binary == str(binary)


def test_a_configured_binary_is_used_or_missed_but_never_replaced(binary: Path, tmp_path: Path) -> None:
    found = find_launcher(str(binary))
    assert found is not None
    assert found.binary == str(binary)
    assert find_launcher(str(tmp_path / "nowhere")) is None


def test_the_host_runs_in_this_python() -> None:
    assert host_command().arguments[0] == sys.executable


def test_the_plan_becomes_flags_and_the_key_stays_out_of_them() -> None:
    made = binary_command("llama-server", PLAN, "secret")
    assert "secret" not in " ".join(made.arguments)
    assert made.environment == {"LLAMA_API_KEY": "secret"}
    assert flag(PLAN, "--ctx-size") == "3000"
    assert flag(PLAN, "--parallel") == "3"
    assert flag(PLAN, "--threads") == "2"
    assert flag(PLAN, "--fit") == "off"
    assert flag(PLAN, "--host") == "127.0.0.1"


def test_only_a_plan_for_embeddings_asks_for_them() -> None:
    embedding = LaunchPlan(model_path="/m.gguf", context_length=64, embedding=True, pooling="cls", ubatch=64)
    assert flag(embedding, "--pooling") == "cls"
    assert "--embeddings" not in binary_command("llama-server", PLAN, "key").arguments
    assert batch_of(embedding) == (64, 64)
    assert pooling_of(PLAN) == "mean"


def test_batches_on_the_cpu_are_short_enough_to_leave_in_between() -> None:
    assert batch_of(PLAN) == (256, 256)
    on_gpu = LaunchPlan(model_path="/m.gguf", context_length=1000, gpu_layers=99)
    assert batch_of(on_gpu) == (2048, 512)


def test_totals_and_overrides() -> None:
    assert total_context(PLAN) == 3000
    assert http_threads(PLAN) > PLAN.parallel
    assert cpu_expert_override(2).count("exps=CPU") == 2
