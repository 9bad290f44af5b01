"""The formulas and llama.cpp's own sizing hold each other to account."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import structs

from localllm.core.engine_log import total_bytes
from localllm.core.errors import GenerationFailed
from localllm.core.facts import ModelFacts, facts_from_header
from localllm.core.gguf import GGUFHeader, TensorInfo
from localllm.core.kv_cache import layer_caches
from localllm.core.launch import LaunchPlan
from localllm.core.memory import Estimator
from localllm.core.units import MIB
from localllm.engines.llama_cpp.simulate import Simulator, question_of
from localllm.hub.gguf_file import read_header
from tests.support.family_headers import FAMILIES, family_header
from tests.support.known_facts import header_of
from tests.support.tiny_gguf import ARCHITECTURES, Architecture, write_tiny_gguf

pytestmark = pytest.mark.llama_cpp


@pytest.fixture(scope="module")
def simulator() -> Iterator[Simulator]:
    with Simulator() as running:
        yield running


def plan(context: int, **changes: object) -> LaunchPlan:
    base = LaunchPlan(model_path="", context_length=context, flash_attention="on")
    return structs.replace(base, **changes)


def both(
    simulator: Simulator, header: GGUFHeader, launch: LaunchPlan, outputs: int
) -> tuple[tuple[float, float], tuple[float, float]]:
    """((cache, scratch) by the formulas, the same by llama.cpp), in MiB."""
    facts: ModelFacts = facts_from_header(header)
    told = simulator.ask(question_of(header, facts.n_vocab, launch, outputs=outputs))
    caches = sum(cache.total for cache in layer_caches(facts, launch))
    scratch = Estimator(facts, ()).estimate(launch, outputs=outputs).compute_bytes
    return (
        (caches / MIB, scratch / MIB),
        (
            (total_bytes(told, "kv") + total_bytes(told, "recurrent")) / MIB,
            total_bytes(told, "compute") / MIB,
        ),
    )


_PLANS = (
    plan(8192),
    plan(32768),
    plan(8192, ubatch=256),
    plan(4096, parallel=4),
    plan(4096, parallel=4, unified_kv=False),
    plan(8192, kv_type_k="q8_0", kv_type_v="q8_0"),
    plan(8192, flash_attention="off"),
)


@pytest.mark.parametrize(
    "model",
    [
        "Llama-3.1-8B",
        "Llama-3.3-70B",
        "Mistral-Nemo",
        "Mixtral-8x7B",
        "Qwen2.5-7B",
        "Qwen3-4B",
        "Qwen3-32B",
        "Qwen3-30B-A3B",
        "gemma-2b",
        "gemma-2-9b",
        "gemma-3-270m",
        "gemma-3-12b",
        "Phi-3-mini",
        "gpt-oss-20b",
        "DeepSeek-V2-Lite",
        "GLM-4.7-Flash",
        "Qwen3.5-9B",
        "Qwen3.6-35B-A3B",
        "Qwen3-Coder-Next",
        "OLMo-2-1124-13B",
        "EXAONE-3.5-7.8B",
        "GLM-4-32B",
        "SmolLM3-3B",
        "granite-3.1-8b",
    ],
)
def test_known_models_are_sized_alike(simulator: Simulator, model: str) -> None:
    header = header_of(model, "MXFP4_MOE" if model == "gpt-oss-20b" else "Q4_K_M")
    for launch in _PLANS:
        mine, theirs = both(simulator, header, launch, launch.parallel)
        assert mine[0] == pytest.approx(theirs[0], abs=0.02), launch
        assert mine[1] == pytest.approx(theirs[1], rel=0.12), launch
        assert mine[1] > theirs[1] * 0.95, launch


@pytest.mark.parametrize("architecture", FAMILIES)
def test_families_are_sized_alike(simulator: Simulator, architecture: str) -> None:
    """Caches and states to the byte; scratch within what a family's own arithmetic may add."""
    header = family_header(architecture)
    for launch in (plan(4096), plan(2048, parallel=3), plan(2048, parallel=3, unified_kv=False)):
        mine, theirs = both(simulator, header, launch, launch.parallel)
        assert mine[0] == pytest.approx(theirs[0], abs=0.02), launch
        assert 0.92 * theirs[1] < mine[1] < 1.4 * theirs[1], launch


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tiny_models_are_sized_alike(
    simulator: Simulator, architecture: Architecture, tmp_path: Path
) -> None:
    header = read_header(write_tiny_gguf(tmp_path / "tiny.gguf", architecture))
    for launch in (plan(1024), plan(1024, parallel=3), plan(1024, parallel=3, unified_kv=False)):
        mine, theirs = both(simulator, header, launch, launch.parallel)
        assert mine[0] == pytest.approx(theirs[0], abs=0.02), launch
        assert mine[1] == pytest.approx(theirs[1], abs=0.4), launch


def test_an_encoder_is_sized_alike(simulator: Simulator) -> None:
    for launch in (
        plan(512, embedding=True, batch=512, ubatch=512),
        plan(128, embedding=True, batch=128, ubatch=128),
    ):
        mine, theirs = both(simulator, _encoder(), launch, 0)
        assert mine[0] == theirs[0] == 0
        assert mine[1] == pytest.approx(theirs[1], rel=0.12)


def _encoder() -> GGUFHeader:
    """bge-small's shape: BERT, 12 layers of 384."""
    width, inner, words = 384, 1536, 30522
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (width, words),
        "token_types.weight": (width, 2),
        "position_embd.weight": (width, 512),
        "token_embd_norm.weight": (width,),
        "token_embd_norm.bias": (width,),
    }
    for layer in range(12):
        block = f"blk.{layer}."
        for name, shape in (
            ("attn_q", (width, width)),
            ("attn_k", (width, width)),
            ("attn_v", (width, width)),
            ("attn_output", (width, width)),
            ("ffn_up", (width, inner)),
            ("ffn_down", (inner, width)),
        ):
            shapes |= {f"{block}{name}.weight": shape, f"{block}{name}.bias": shape[1:]}
        for name in ("attn_output_norm", "layer_output_norm"):
            shapes |= {f"{block}{name}.weight": (width,), f"{block}{name}.bias": (width,)}
    relative = {
        "block_count": 12,
        "context_length": 512,
        "embedding_length": width,
        "feed_forward_length": inner,
        "attention.head_count": 12,
        "attention.layer_norm_epsilon": 1e-12,
        "attention.causal": False,
        "pooling_type": 1,
        "vocab_size": words,
    }
    return GGUFHeader(
        version=3,
        metadata={
            "general.architecture": "bert",
            "tokenizer.ggml.token_type_count": 2,
            **{f"bert.{key}": value for key, value in relative.items()},
        },
        tensors=tuple(
            TensorInfo(name, shape, "F32", 0, 4 * math.prod(shape)) for name, shape in shapes.items()
        ),
        alignment=32,
        data_offset=0,
        size_bytes=0,
    )


def test_the_demo_model_is_sized_exactly(simulator: Simulator, demo_model: Path) -> None:
    header = read_header(demo_model)
    for launch in (plan(2048), plan(8192, parallel=4), plan(32768, ubatch=256)):
        mine, theirs = both(simulator, header, launch, launch.parallel)
        assert mine[0] == theirs[0]
        assert mine[1] == pytest.approx(theirs[1], abs=0.03)


def test_an_answer_is_remembered(simulator: Simulator) -> None:
    header = header_of("Llama-3.2-1B")
    question = question_of(header, 128256, plan(4096), outputs=1)
    assert simulator.ask(question) is simulator.ask(question)


def test_a_header_llama_cpp_refuses_is_an_error_and_the_next_one_works(simulator: Simulator) -> None:
    good = question_of(header_of("Llama-3.2-1B"), 128256, plan(2048), outputs=1)
    with pytest.raises(GenerationFailed, match="does not accept the header"):
        simulator.ask(structs.replace(good, header=b"GGUF" + bytes(20)))
    broken = header_of("Llama-3.2-1B")
    metadata = {key: value for key, value in broken.metadata.items() if not key.endswith("rms_epsilon")}
    missing = structs.replace(broken, metadata=metadata)
    with pytest.raises(GenerationFailed, match="cannot build this model"):
        simulator.ask(question_of(missing, 128256, plan(2048), outputs=1))
    assert simulator.ask(good)


def test_a_worker_that_dies_costs_one_answer() -> None:
    question = question_of(header_of("Llama-3.2-1B"), 128256, plan(2048), outputs=1)
    with Simulator() as simulator:
        simulator.ask(question)
        process = simulator._process
        assert process is not None
        process.kill()
        process.wait()
        other = structs.replace(question, context=4096)
        assert simulator.ask(other)
