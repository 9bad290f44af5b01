"""The planner's benchmark on a small truth: its figures, its goals, and rows it cannot judge."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import planner
from benchmarks.planner_figures import Lacking, at_least, at_most, median, percentile

DATA = Path(__file__).parents[2] / "data"

MEMORY_FIGURES = (
    "kv_max_error_percent",
    "kv_rows",
    "weights_median_error_percent",
    "compute_median_error_percent",
    "compute_under_count",
    "total_median_error_percent",
    "total_p95_error_percent",
)
SPEED_FIGURES = ("speed_median_error_percent", "speed_p90_error_percent", "speed_in_range_percent")


def run(path: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    assert planner.main([str(path), "--json"]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def figures(found: dict[str, object]) -> dict[str, dict[str, object]]:
    listed = found["figures"]
    assert isinstance(listed, list)
    return {figure["name"]: figure for figure in listed}


def test_a_memory_truth(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.planner_memory.available", lambda: False)
    found = run(DATA / "memory_truth_sample.jsonl", capsys)
    table = figures(found)
    assert list(table) == [*MEMORY_FIGURES, *(f"sim_{name}" for name in MEMORY_FIGURES)]
    assert all(table[name]["met"] is not False for name in MEMORY_FIGURES)
    for name in MEMORY_FIGURES:
        assert table[f"sim_{name}"]["value"] is None
        assert "not installed" in str(table[f"sim_{name}"]["note"])
    runs = found["runs"]
    assert isinstance(runs, dict)
    assert runs["rows"] == 12
    assert any("doubts" in row for row in runs["lacking"]["everything"]["rows"])
    assert "machine" in found


@pytest.mark.llama_cpp
def test_the_simulation_is_measured_too(capsys: pytest.CaptureFixture[str]) -> None:
    table = figures(run(DATA / "memory_truth_sample.jsonl", capsys))
    assert table["sim_kv_rows"]["value"]
    assert table["sim_kv_max_error_percent"]["met"] is True
    assert table["sim_compute_under_count"]["met"] is True


def test_a_speed_truth(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(DATA / "speed_truth_sample.csv", capsys)
    table = figures(found)
    assert list(table) == [*SPEED_FIGURES, *(f"sim_{name}" for name in SPEED_FIGURES)]
    assert table["speed_median_error_percent"]["met"] is True
    runs = found["runs"]
    assert isinstance(runs, dict)
    reasons = " ".join(runs["lacking"]["speed"]["rows"])
    assert "doubts" in reasons
    assert "tensor parallelism" in reasons


def test_rows_that_make_no_sense_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    memory = tmp_path / "memory.jsonl"
    memory.write_text(
        '{"model": "x", "devices": 7}\n'
        "nonsense\n"
        '{"model": "Llama-3.1-8B", "devices": [], "n_ctx": 1, "kv_type_k": "turbo9"}\n'
    )
    runs = run(memory, capsys)["runs"]
    assert isinstance(runs, dict)
    assert runs["rows"] == 3
    assert runs["lacking"]["everything"]["count"] == 3
    speed = tmp_path / "speed.csv"
    speed.write_text(
        "device,backend,model,quant,tg128,tg_test,depth,tier,note\nX,,Y,,fast,,,A,\nX,,Y,,5,,,A,\n"
    )
    found = run(speed, capsys)
    assert figures(found)["speed_median_error_percent"]["value"] is None


def test_rows_are_printed_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    planner.main([str(DATA / "speed_truth_sample.csv"), "--json", "--rows"])
    assert "RTX 5090 / Llama-2-7B" in capsys.readouterr().err


def test_goals() -> None:
    assert at_most("x", 1.0, "%", 2).met is True
    assert at_most("x", 3.0, "%", 2).met is False
    assert at_least("x", None, "%", 2).met is None
    assert median([]) is None
    assert percentile([], 90) is None
    assert percentile([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 90) == 9
    assert percentile([5], 95) == 5


def test_what_is_lacking_is_counted_and_named() -> None:
    lacking = Lacking()
    lacking.add("kv", "1 model", "no context length")
    assert lacking.summary() == {"kv": {"count": 1, "rows": ["1 model: no context length"]}}
