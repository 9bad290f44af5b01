"""The whole estimate against load logs, device by device, in MiB as logged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device, DeviceKind
from localllm.core.memory import HABITS, Estimator, Extras, MemoryEstimate
from localllm.core.units import GIB, MIB
from tests.support.known_facts import facts_of


def gpu(name: str = "gpu0", gib: int = 24, backend: str = "cuda") -> Device:
    return Device(
        id=name,
        kind=DeviceKind.GPU,
        name=name,
        backend=backend,  # type: ignore[arg-type]
        total_bytes=gib * GIB,
        free_bytes=gib * GIB,
        margin_bytes=0,
    )


def plan(context: int, **changes: object) -> LaunchPlan:
    base = LaunchPlan(model_path="", context_length=context, gpu_layers=999, flash_attention="on")
    return structs.replace(base, **changes)


def mib(estimate: MemoryEstimate, device: str) -> dict[str, float]:
    found = estimate.on(device)
    return {"weights": found.weights / MIB, "kv": found.kv / MIB, "compute": found.compute / MIB}


@pytest.mark.parametrize(
    ("model", "context", "kv_type", "compute"),
    [
        ("Llama-3.1-8B", 16384, "f16", 124.01),
        ("Llama-3.1-8B", 65536, "f16", 172.01),
        ("Llama-3.1-8B", 131072, "f16", 236.01),
        ("Llama-3.1-8B", 16384, "q8_0", 124.09),
        ("Llama-3.1-8B", 32768, "q8_0", 192.09),
        ("Llama-3.1-8B", 131072, "q4_0", 672.09),
        ("gemma-2b", 32768, "f16", 140.01),
        ("gemma-2b", 65536, "q8_0", 172.28),
        ("gemma-2b", 131072, "q8_0", 272.28),
    ],
)
def test_compute_on_an_rtx_3090(model: str, context: int, kv_type: str, compute: float) -> None:
    """Logs of build 36b101543 (September 2026), one output, batches of 512."""
    estimator = Estimator(facts_of(model), [gpu()])
    found = mib(estimator.estimate(plan(context, kv_type_k=kv_type, kv_type_v=kv_type)), "gpu0")["compute"]
    assert found == pytest.approx(compute, rel=0.021)
    assert found > compute - 0.3, "never under by more than rounding"


@pytest.mark.parametrize(("batch", "compute"), [(256, 205), (512, 214), (1024, 232)])
def test_experts_on_the_cpu_pass_through_the_gpu(batch: int, compute: float) -> None:
    """Qwen3.6-35B-A3B with the experts of 34 layers on the CPU of an RTX 3060 (build b10644)."""
    facts = facts_of("Qwen3.6-35B-A3B", "IQ3_XXS")
    launch = plan(1024, parallel=8, unified_kv=False, cpu_moe_layers=34, ubatch=batch)
    found = mib(Estimator(facts, [gpu()]).estimate(launch), "gpu0")["compute"]
    assert compute <= found <= compute * 1.05


@pytest.mark.parametrize(
    ("model", "quant", "on_cpu", "on_gpu"),
    [
        ("Llama-3.1-8B", "Q4_K_M", 281.81, 4403.49),
        ("Qwen2.5-7B", "Q4_K_M", 292.36, 4168.09),
        ("Qwen3-30B-A3B", "Q8_0", 315.3, 30658.12),
    ],
)
def test_weights_at_full_offload(model: str, quant: str, on_cpu: float, on_gpu: float) -> None:
    estimate = Estimator(facts_of(model, quant), [gpu()]).estimate(plan(4096))
    assert mib(estimate, "cpu")["weights"] == pytest.approx(on_cpu, abs=0.02)
    assert mib(estimate, "gpu0")["weights"] == pytest.approx(on_gpu, rel=0.0001)


def test_a_tied_embedding_is_held_twice() -> None:
    facts = facts_of("gemma-2b", "Q4_0")
    estimate = Estimator(facts, [gpu()]).estimate(plan(4096))
    assert mib(estimate, "cpu")["weights"] == pytest.approx(410.16, abs=0.02)
    assert mib(estimate, "gpu0")["weights"] == pytest.approx(1473.57, abs=0.02)
    alone = Estimator(facts, []).estimate(plan(4096, gpu_layers=0))
    assert mib(alone, "cpu")["weights"] == pytest.approx(1473.57, abs=0.1)


def test_a_cpu_only_load() -> None:
    """Llama-3.1-8B Q4_0 without a GPU: 4437.82 of weights, 512 of cache, 296.01 of scratch (an old build)."""
    found = mib(
        Estimator(facts_of("Llama-3.1-8B", "Q4_0"), []).estimate(
            plan(4096, gpu_layers=0, flash_attention="off")
        ),
        "cpu",
    )
    assert found["weights"] == pytest.approx(4437.82, abs=0.05)
    assert found["kv"] == 512
    assert found["compute"] == pytest.approx(296.01, rel=0.05)


def test_a_whole_batch_of_logits_when_the_build_wants_them() -> None:
    """bllossom 8B on an RTX 3070 with an older build: logits of 512 tokens make 258.50 MiB."""
    estimate = Estimator(facts_of("Llama-3.1-8B"), [gpu()]).estimate(
        plan(512, flash_attention="off"), outputs=512
    )
    assert mib(estimate, "gpu0")["compute"] == pytest.approx(258.5, abs=0.01)


def test_layers_are_shared_in_proportion() -> None:
    facts = facts_of("Llama-3.1-8B")
    estimate = Estimator(facts, [gpu("a", 24), gpu("b", 8)]).estimate(plan(4096))
    layers = 32
    assert mib(estimate, "a")["kv"] + mib(estimate, "b")["kv"] == 512
    assert mib(estimate, "a")["kv"] == pytest.approx(512 * 25 / layers)


def test_only_the_last_layers_go_to_the_gpu() -> None:
    estimate = Estimator(facts_of("Llama-3.1-8B"), [gpu()]).estimate(plan(4096, gpu_layers=9))
    assert mib(estimate, "gpu0")["kv"] == 512 * 8 / 32
    assert mib(estimate, "cpu")["kv"] == 512 * 24 / 32


def test_extras_are_counted_where_the_output_is() -> None:
    facts = facts_of("Llama-3.1-8B")
    plain = Estimator(facts, [gpu()]).estimate(plan(4096)).on("gpu0").weights
    extras = Extras(projector=5, draft=7, adapters=11)
    assert Estimator(facts, [gpu()], extras=extras).estimate(plan(4096)).on("gpu0").weights == plain + 23


def test_an_engine_that_keeps_spare_windows_takes_more() -> None:
    facts = facts_of("gemma-3-270m")
    launch = plan(8192, parallel=4, gpu_layers=0, ubatch=256)
    served = Estimator(facts, [], habits=HABITS["llama_server"]).estimate(launch)
    scheduled = Estimator(facts, [], habits=HABITS["llama_cpp"]).estimate(launch)
    assert served.kv_bytes / MIB == 129.75
    assert scheduled.kv_bytes / MIB == 144.75
    assert scheduled.output_bytes == 6 * 262144 * 4


def test_the_estimate_adds_up() -> None:
    estimate = Estimator(facts_of("Llama-3.1-8B"), [gpu()]).estimate(plan(4096))
    parts = (
        estimate.weights_bytes
        + estimate.kv_bytes
        + estimate.compute_bytes
        + estimate.output_bytes
        + estimate.overhead_bytes
    )
    assert parts == estimate.total_bytes == sum(estimate.by_device().values())
    with pytest.raises(KeyError):
        estimate.on("gpu7")


@given(
    st.sampled_from(["Llama-3.1-8B", "Qwen3-30B-A3B", "gemma-3-4b", "Qwen3.6-27B", "DeepSeek-V2-Lite"]),
    st.integers(0, 70),
    st.integers(1, 65536),
    st.integers(1, 8),
)
def test_every_layer_is_somewhere(model: str, gpu_layers: int, context: int, parallel: int) -> None:
    facts = facts_of(model)
    launch = plan(context, gpu_layers=gpu_layers, parallel=parallel)
    split = Estimator(facts, [gpu("a"), gpu("b")]).estimate(launch)
    alone = Estimator(facts, []).estimate(structs.replace(launch, gpu_layers=0))
    assert split.kv_bytes == alone.kv_bytes
    assert split.weights_bytes >= alone.weights_bytes
    assert all(device.total >= 0 for device in split.devices)


def test_an_embedding_computes_logits_for_every_token_on_the_way() -> None:
    """llama.cpp's own sizing of Qwen3-0.6B with batches of 2,048: 1203.01 MiB."""
    launch = plan(2048, gpu_layers=0, embedding=True, batch=2048, ubatch=2048)
    found = Estimator(facts_of("Qwen3-0.6B"), []).estimate(launch)
    assert mib(found, "cpu")["compute"] == pytest.approx(1203.01, abs=0.05)


@pytest.mark.parametrize(
    ("context", "parallel", "kv", "compute", "output"),
    [(2048, 1, 17.25, 10.51, 1), (4096, 2, 42.75, 13.76, 2), (8192, 4, 129.75, 26.26, 4)],
)
def test_the_demo_model_in_the_bundled_server(
    context: int, parallel: int, kv: float, compute: float, output: float
) -> None:
    """gemma-3-270m, batches of 256, as xllamacpp 2026.10 logs its buffers."""
    launch = plan(context, parallel=parallel, gpu_layers=0, ubatch=256, flash_attention="auto")
    found = Estimator(facts_of("gemma-3-270m"), [], habits=HABITS["llama_server"]).estimate(launch)
    assert mib(found, "cpu")["kv"] == kv
    assert mib(found, "cpu")["compute"] == pytest.approx(compute, abs=0.02)
    assert found.output_bytes == output * MIB


@pytest.mark.parametrize(
    ("context", "parallel", "kv", "compute", "output"),
    [(2048, 1, 32.25, 33.71, 3), (4096, 2, 57.75, 34.71, 4)],
)
def test_the_demo_model_in_the_scheduler(
    context: int, parallel: int, kv: float, compute: float, output: float
) -> None:
    """The same in the llama_cpp engine, which keeps two spare windows and room for drafts."""
    launch = plan(context, parallel=parallel, gpu_layers=0, ubatch=256, flash_attention="auto")
    found = Estimator(facts_of("gemma-3-270m"), [], habits=HABITS["llama_cpp"]).estimate(launch)
    assert mib(found, "cpu")["kv"] == kv
    assert mib(found, "cpu")["compute"] == pytest.approx(compute, abs=0.02)
    assert found.output_bytes == output * MIB
