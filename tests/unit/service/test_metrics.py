from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from localllm.core.control import InstancePhase, InstanceState, RequestRecord
from localllm.core.machine import DeviceKind, DeviceSample
from localllm.service.metrics import Distribution, Metrics


def record(**fields: object) -> RequestRecord:
    base: dict[str, object] = {"id": "r", "created_at": 0.0, "endpoint": "chat", "model": "m", "status": 200}
    return RequestRecord(**{**base, **fields})  # type: ignore[arg-type]


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = metrics.render().decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_request_is_counted_under_vllms_names() -> None:
    metrics = Metrics()
    metrics.finished(
        record(
            ttft_ms=30.0,
            tpot_ms=12.0,
            total_ms=100.0,
            queue_ms=0.0,
            prompt_tokens=20,
            cached_tokens=5,
            completion_tokens=3,
            finish_reason="stop",
        ),
        [11.0, 13.0],
    )
    found = samples(metrics)
    of_model = (("model_name", "m"),)

    assert found["localllm_time_to_first_token_seconds_sum", of_model] == 0.03
    assert found["localllm_inter_token_latency_seconds_count", of_model] == 2
    assert found["localllm_prompt_tokens_total", of_model] == 20
    assert found["localllm_generation_tokens_total", of_model] == 3
    assert found["localllm_prefix_cache_hits_total", of_model] == 5
    bucket = (("le", "0.05"), ("model_name", "m"))
    assert found["localllm_time_to_first_token_seconds_bucket", bucket] == 1
    outcome = (("endpoint", "chat"), ("finished_reason", "stop"), ("model_name", "m"), ("status", "200"))
    assert found["localllm_requests_total", outcome] == 1


def test_a_failed_request_is_counted_by_its_code() -> None:
    metrics = Metrics()
    metrics.finished(record(status=500, error_code="engine_crashed"), [])
    outcome = (
        ("endpoint", "chat"),
        ("finished_reason", "engine_crashed"),
        ("model_name", "m"),
        ("status", "500"),
    )
    assert samples(metrics)["localllm_requests_total", outcome] == 1


def test_what_the_engine_counts_inside_is_passed_on() -> None:
    state = InstanceState(
        model="m",
        engine="e",
        phase=InstancePhase.BUSY,
        waiting_by_tier={"flex": 3},
        engine_counters={"steps_total": 10, "prefilled_tokens_total": 250, "step_seconds_total": 0.5},
    )
    found = samples(Metrics(lambda: (state,), lambda: ()))
    of_engine = (("engine", "e"), ("model_name", "m"))
    assert found["localllm_engine_steps_total", of_engine] == 10
    assert found["localllm_engine_prefilled_tokens_total", of_engine] == 250
    assert found["localllm_engine_step_seconds_total", of_engine] == 0.5
    assert found["localllm_engine_requests_waiting", (*of_engine, ("tier", "flex"))] == 3
    assert not [name for name, _ in found if name == "localllm_engine_preemptions_total"]


def test_models_and_devices_are_asked_at_each_scrape() -> None:
    state = InstanceState(
        model="m", engine="e", phase=InstancePhase.BUSY, running=2, kv_used_tokens=50, kv_total_tokens=200
    )
    device = DeviceSample(id="cuda0", name="A card", kind=DeviceKind.GPU, memory_used_bytes=7)
    found = samples(Metrics(lambda: (state,), lambda: (device,)))

    assert found["localllm_num_requests_running", (("engine", "e"), ("model_name", "m"))] == 2
    assert found["localllm_kv_cache_usage_perc", (("engine", "e"), ("model_name", "m"))] == 0.25
    assert found["localllm_device_memory_used_bytes", (("device", "cuda0"), ("name", "A card"))] == 7
    assert not [name for name, _ in found if name == "localllm_device_power_watts"]


@given(st.lists(st.floats(0, 100), max_size=50))
def test_buckets_are_cumulative_and_hold_every_value(values: list[float]) -> None:
    distribution = Distribution((0.5, 1, 10))
    distribution.add(values)
    counts = [count for _, count in distribution.buckets()]

    assert counts == sorted(counts)
    assert counts == [
        *(sum(value <= bound for value in values) for bound in (0.5, 1, 10)),
        len(values),
    ]
