from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from localllm.cli.local_model import LocalModel, find_local_model, find_model_or_figures, this_machine
from localllm.cli.main import main
from localllm.cli.recommend import candidates_for
from localllm.core.learn import Ground, Observation
from localllm.engines.measurements import Measurement, MeasurementFile
from localllm.engines.residuals import ResidualFile
from localllm.settings.paths import Paths
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.fixture
def file(tmp_path: Path) -> str:
    return str(write_tiny_gguf(tmp_path / "tiny.gguf", "llama"))


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)["data"]


def test_a_plan_says_what_goes_where_and_why(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", file, "--simulate", "RTX 4090", "--context", "512"]) == 0
    out = capsys.readouterr().out
    assert "GeForce RTX 4090" in out and "All 5 layers" in out
    plan = run_json(capsys, "plan", file, "--simulate", "RTX 4090", "--context", "512")
    assert plan["launch"]["context_length"] == 512
    assert {device["device_id"] for device in plan["memory"]["devices"]} == {"cpu", "cuda0"}


def test_the_profile_decides_how_long_a_context_is_wanted(capsys: pytest.CaptureFixture[str]) -> None:
    contexts = {
        profile: run_json(capsys, "plan", "Llama-3.1-8B", "--simulate", "RTX 4090", "--profile", profile)[
            "launch"
        ]["context_length"]
        for profile in ("chat", "batch", "agent")
    }
    assert contexts["batch"] < contexts["chat"] < contexts["agent"]


def test_a_model_that_is_not_here_is_planned_by_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "Qwen3-8B:Q6_K", "--simulate", "RTX 4090"]) == 0
    printed = capsys.readouterr()
    assert "qwen3-8b:Q6_K on GeForce RTX 4090" in printed.out
    assert "not here" in printed.err
    assert main(["plan", "no-such-model"]) == 4


def test_what_a_model_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--hardware-for", "Llama-3.1-8B"]) == 0
    assert "GeForce RTX 4060" in capsys.readouterr().out
    short = run_json(capsys, "plan", "Llama-3.1-8B", "--hardware-for")
    long = run_json(capsys, "plan", "Llama-3.1-8B", "--hardware-for", "--context", "64k")
    assert long["gpu_bytes"] > short["gpu_bytes"]
    assert len(long["candidates"]) < len(short["candidates"])


@pytest.mark.parametrize("verb", ["fit", "plan"])
def test_a_plan_in_the_words_of_another_program(
    verb: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [verb, file, "--context", "512", "--parallel", "2", "--simulate", "RTX 4090"]
    assert main([*asked, "--as", "llama-server"]) == 0
    words = shlex.split(capsys.readouterr().out)
    assert words[words.index("--model") + 1] == file
    assert words[words.index("--ctx-size") + 1] == "1024"
    assert main([*asked, "--as", "ollama"]) == 0
    assert f"FROM {file}" in capsys.readouterr().out
    data = run_json(capsys, *asked, "--as", "sglang")
    assert data["target"] == "sglang" and "--context-length 512" in data["text"]
    assert data["plan"]["parallel"] == 2


def test_programs_that_run_the_original_weights_are_given_their_repository(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["plan", "Qwen3-8B", "--simulate", "RTX 4090", "--as", "vllm"]) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("vllm serve Qwen/Qwen3-8B ")
    assert "original weights" in printed.err


def test_a_fit_table_of_a_model_that_is_not_here(capsys: pytest.CaptureFixture[str]) -> None:
    table = run_json(capsys, "fit", "Qwen3-8B", "--simulate", "RTX 4090")
    assert not any(row["here"] for row in table["rows"])
    assert sum(row["recommended"] for row in table["rows"]) == 1


def test_recommended_models_fit_and_serve_the_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["recommend", "--simulate", "RTX 4090", "--limit", "3"]) == 0
    assert "For chat on GeForce RTX 4090" in capsys.readouterr().out
    found = run_json(capsys, "recommend", "--simulate", "RTX 4090", "--limit", "3", "--task", "code")
    assert len(found) == 3
    assert all(suggestion["total_bytes"] < 25 << 30 for suggestion in found)
    tiny = run_json(capsys, "recommend", "--simulate", "GTX 1650")
    assert tiny and all(s["parameters"] < 8e9 for s in tiny)


def test_every_recommended_name_can_be_planned(capsys: pytest.CaptureFixture[str]) -> None:
    for candidate in candidates_for("chat"):
        assert find_model_or_figures(candidate.name).facts.parameters > 0, candidate.name
    assert find_model_or_figures("qwen3:8b:Q6_K").name == "qwen3-8b:Q6_K"


def test_without_a_catalogue_every_known_model_is_a_candidate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localllm.cli.local_model.catalogue", lambda: ())
    names = {candidate.name for candidate in candidates_for("code")}
    assert "Qwen2.5-Coder-7B" in names
    assert not any("Embedding" in name or "Guard" in name for name in names)


def test_what_was_measured_and_learned_here_counts(
    file: str, capsys: pytest.CaptureFixture[str], paths: Paths
) -> None:
    before = run_json(capsys, "plan", file, "--context", "512", "--parallel", "1")
    if before["speed"] is None:
        pytest.skip("the memory bandwidth of this machine is unknown")
    model, cpu = find_local_model(file), this_machine().cpu
    MeasurementFile(paths.measurements_file).append(measured(model, cpu.name, 2 * before["speed"]["decode"]))
    planned = before["memory"]["devices"][0]["kv"]
    ResidualFile(paths.residuals_file).write(
        [
            Observation(
                ground=Ground("cpu", "cpu", "llama_server 1"),
                part="kv",
                planned_bytes=planned,
                measured_bytes=planned + planned // 2,
                at=1.0,
            )
        ]
    )
    after = run_json(capsys, "plan", file, "--context", "512", "--parallel", "1")
    assert after["memory"]["devices"][0]["kv"] == planned + planned // 2
    assert "own measurement" in after["speed"]["reason"]
    assert main(["fit", file, "--context", "512", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["data"]["rows"]
    assert "own measurement" in next(row for row in rows if row["here"])["speed_reason"]


def measured(model: LocalModel, device: str, rate: float) -> Measurement:
    return Measurement(
        at=1.0,
        model=model.name,
        model_key=model.key,
        quant=None,
        device=device,
        backend="cpu",
        engine="llama_cpp",
        build="1",
        threads=1,
        gpu_layers=0,
        kv_type="f16",
        prompt_tokens=512,
        generated_tokens=128,
        depth=0,
        prefill_tokens_per_second=100.0,
        decode_tokens_per_second=rate,
    )
