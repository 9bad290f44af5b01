"""The measuring process on real weights: tiny ones, written here."""

from __future__ import annotations

from pathlib import Path

import pytest

from localllm.core.errors import BadRequest, LoadFailed
from localllm.core.launch import LaunchPlan
from localllm.engines.llama_cpp.lab import run_bench, run_eval, run_tune
from localllm.engines.llama_cpp.lab_request import Advance, BenchRequest, EvalRequest, TuneRequest
from tests.support.tiny_gguf import write_tiny_gguf

pytest.importorskip("llama_cpp", reason="needs llama-cpp-python (extra `llama-cpp`)")
pytestmark = pytest.mark.llama_cpp

TEXT = "The quick brown fox jumps over the lazy dog, again and again, until the evening comes. " * 12


def tiny(folder: Path, name: str = "a", seed: int = 0) -> LaunchPlan:
    path = folder / f"{name}.gguf"
    write_tiny_gguf(path, "llama", seed=seed)
    return LaunchPlan(model_path=str(path), context_length=256, threads=1)


def test_bench_gives_a_speed_per_repetition_and_its_progress(tmp_path: Path) -> None:
    heard: list[Advance] = []
    request = BenchRequest(plan=tiny(tmp_path), prompt_tokens=32, generated_tokens=4, depth=8, repetitions=2)
    result = run_bench(request, heard.append)
    assert len(result.prefill_tokens_per_second) == len(result.decode_tokens_per_second) == 2
    assert min(result.prefill_tokens_per_second + result.decode_tokens_per_second) > 0
    assert [step.done for step in heard] == list(range(6))


def test_a_model_loses_nothing_against_itself_and_something_against_another(tmp_path: Path) -> None:
    same, other = tiny(tmp_path), tiny(tmp_path, "b", seed=1)
    result = run_eval(
        EvalRequest(plans=(same, same, other), text=TEXT, window_tokens=64, max_windows=2), lambda _: None
    )
    reference, itself, stranger = result.models
    assert reference.mean_kld is None
    assert itself.mean_kld == pytest.approx(0.0, abs=1e-6)
    assert itself.perplexity == pytest.approx(reference.perplexity)
    assert itself.same_top_percent == 100.0
    assert stranger.mean_kld is not None
    assert stranger.mean_kld > 1e-4
    assert result.scored_tokens == 2 * 31


def test_tuning_tries_every_candidate_and_picks_among_them(tmp_path: Path) -> None:
    result = run_tune(TuneRequest(plan=tiny(tmp_path), threads=(1, 2), rounds=1), lambda _: None)
    assert {t.value for t in result.decode} == {1, 2}
    assert result.threads in (1, 2)
    assert result.ubatch in {t.value for t in result.ubatches}


def test_what_cannot_be_measured_says_why(tmp_path: Path) -> None:
    plan = tiny(tmp_path)
    with pytest.raises(BadRequest, match="one window takes"):
        run_eval(EvalRequest(plans=(plan,), text="short", window_tokens=64), lambda _: None)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(Path(plan.model_path).read_bytes()[:4000])
    with pytest.raises(LoadFailed):
        run_bench(BenchRequest(plan=LaunchPlan(model_path=str(broken), context_length=64)), lambda _: None)
