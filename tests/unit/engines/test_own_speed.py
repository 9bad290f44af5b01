"""Own measurements correct the estimate."""

from __future__ import annotations

import pytest

from localllm.core.launch import LaunchPlan
from localllm.core.recommend import fit_table
from localllm.core.speed import estimate_speed
from localllm.engines.measurements import Measurement
from localllm.engines.own_speed import own_ratios
from tests.support.known_facts import facts_of
from tests.support.plain_machine import machine

HERE = machine(64, 24)
FACTS = facts_of("Qwen3-8B")


def estimated() -> float:
    plan = LaunchPlan(model_path="", context_length=4096, gpu_layers=99)
    speed = estimate_speed(FACTS, plan, HERE.gpus, HERE.cpu)
    assert speed is not None
    return speed.decode


def measured(
    key: str, ratio: float, *, at: float = 1.0, device: str | None = None, depth: int = 0
) -> Measurement:
    return Measurement(
        at=at,
        model=key,
        model_key=key,
        quant="Q4_K_M",
        device=device or HERE.gpus[0].name,
        backend="cuda",
        engine="llama_cpp",
        build="1",
        threads=None,
        gpu_layers=99,
        kv_type="f16",
        prompt_tokens=512,
        generated_tokens=128,
        depth=depth,
        prefill_tokens_per_second=1000.0,
        decode_tokens_per_second=ratio * estimated(),
    )


def ratios(*history: Measurement, keys: tuple[str, ...] = ()) -> tuple[float, ...]:
    return own_ratios(history, {"a": FACTS, "b": FACTS}.get, HERE, keys=keys)


def test_the_model_itself_counts_alone_when_it_was_measured() -> None:
    history = (measured("a", 0.8), measured("b", 1.2))
    assert ratios(*history, keys=("a",)) == pytest.approx((0.8,))
    assert ratios(*history) == pytest.approx((0.8, 1.2))


def test_only_the_last_measurement_of_a_model_counts() -> None:
    assert ratios(measured("a", 0.8, at=2.0), measured("a", 0.5, at=1.0)) == pytest.approx((0.8,))


def test_other_devices_long_contexts_and_unknown_models_say_nothing() -> None:
    assert (
        ratios(measured("a", 0.8, device="Other"), measured("b", 0.8, depth=4096), measured("c", 1.0)) == ()
    )


def test_the_table_shows_what_was_measured() -> None:
    found = fit_table(
        FACTS,
        HERE,
        model="m",
        here={"Q4_K_M": FACTS.size_bytes},
        own_ratios=ratios(measured("a", 0.8), keys=("a",)),
    )
    row = next(row for row in found.rows if row.here)
    assert row.decode_tokens_per_second == pytest.approx(0.8 * estimated())
    assert "own measurement" in (row.speed_reason or "")
