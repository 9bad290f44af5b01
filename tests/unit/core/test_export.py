"""A plan as other programs write it."""

from __future__ import annotations

import shlex

import pytest
from msgspec import structs

from localllm.core.export import Target, export
from localllm.core.launch import LaunchPlan

PLAN = LaunchPlan(
    model_path="/models/my model.gguf",
    context_length=8192,
    parallel=4,
    kv_type_k="q8_0",
    kv_type_v="q8_0",
    flash_attention="on",
    gpu_layers=33,
    tensor_split=(24.0, 8.0),
    cpu_moe_layers=3,
    threads=6,
    stop=("<|im_end|>", 'a "quote"\n'),
)


def flags(text: str) -> dict[str, str | None]:
    words = shlex.split(text)
    return {
        word: None if i + 1 == len(words) or words[i + 1].startswith("--") else words[i + 1]
        for i, word in enumerate(words)
        if word.startswith("--")
    }


def test_llama_server() -> None:
    found = flags(export(PLAN, Target.LLAMA_SERVER, model="x"))
    assert found["--model"] == "/models/my model.gguf"
    assert found["--ctx-size"] == "32768"
    assert found["--parallel"] == "4"
    assert found["--n-gpu-layers"] == "33"
    assert found["--n-cpu-moe"] == "3"
    assert found["--tensor-split"] == "0.75,0.25"
    assert found["--cache-type-k"] == "q8_0"
    assert "--kv-unified" in found


@pytest.mark.parametrize(
    ("target", "context", "sequences", "share"),
    [
        (Target.VLLM, "--max-model-len", "--max-num-seqs", "--gpu-memory-utilization"),
        (Target.SGLANG, "--context-length", "--max-running-requests", "--mem-fraction-static"),
    ],
)
def test_gpu_servers(target: Target, context: str, sequences: str, share: str) -> None:
    text = export(PLAN, target, model="meta-llama/Llama-3.1-8B-Instruct", gpus=2)
    found = flags(text)
    assert "meta-llama/Llama-3.1-8B-Instruct" in text
    assert (found[context], found[sequences], found[share]) == ("8192", "4", "0.90")
    assert "2" in (found.get("--tensor-parallel-size"), found.get("--tp-size"))
    assert (found["--kv-cache-dtype"] or "").startswith("fp8")
    plain = structs.replace(PLAN, kv_type_k="f16", kv_type_v="f16")
    assert "--kv-cache-dtype" not in export(plain, target, model="x")


def test_an_ollama_modelfile() -> None:
    lines = export(PLAN, Target.OLLAMA, model="x").splitlines()
    assert lines[0] == "FROM /models/my model.gguf"
    assert "PARAMETER num_ctx 8192" in lines
    assert "PARAMETER num_gpu 33" in lines
    assert "PARAMETER num_thread 6" in lines
    assert 'PARAMETER stop "<|im_end|>"' in lines
    assert 'PARAMETER stop "a \\"quote\\"\\n"' in lines
    assert any("OLLAMA_KV_CACHE_TYPE=q8_0" in line for line in lines)
    assert any("only the experts" in line for line in lines)
