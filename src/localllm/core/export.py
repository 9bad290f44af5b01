"""A plan in other programs' words: llama-server, vLLM, SGLang and an Ollama Modelfile.

What a program cannot be told is left out or said in a comment; nothing is invented to fill its flags.
"""

from __future__ import annotations

import shlex
from enum import StrEnum
from typing import Final, assert_never

from localllm.core.kv_cache import total_context
from localllm.core.launch import LaunchPlan

GPU_MEMORY_SHARE: Final = 0.90
"""vLLM and SGLang take a share of the whole GPU; nine tenths leaves the driver its part."""


class Target(StrEnum):
    LLAMA_SERVER = "llama-server"
    VLLM = "vllm"
    SGLANG = "sglang"
    OLLAMA = "ollama"


def export(plan: LaunchPlan, target: Target, *, model: str, gpus: int = 1) -> str:
    """The plan as a command line, or as a Modelfile for Ollama.

    ``model`` is the repository that vLLM and SGLang load (they run the original weights, not the GGUF); ``gpus`` how
    many the plan uses.
    """
    match target:
        case Target.LLAMA_SERVER:
            return _llama_server(plan)
        case Target.VLLM:
            return _vllm(plan, model, gpus)
        case Target.SGLANG:
            return _sglang(plan, model, gpus)
        case Target.OLLAMA:
            return _ollama(plan)
        case _:
            assert_never(target)


def _llama_server(plan: LaunchPlan) -> str:
    words = ["llama-server", "--model", plan.model_path]
    words += ["--ctx-size", str(total_context(plan)), "--parallel", str(plan.parallel)]
    words += ["--n-gpu-layers", str(plan.gpu_layers), "--flash-attn", plan.flash_attention]
    words += ["--batch-size", str(plan.batch), "--ubatch-size", str(plan.ubatch)]
    words += ["--cache-type-k", plan.kv_type_k, "--cache-type-v", plan.kv_type_v]
    if plan.unified_kv and plan.parallel > 1:
        words.append("--kv-unified")
    if plan.cpu_moe_layers:
        words += ["--n-cpu-moe", str(plan.cpu_moe_layers)]
    if plan.tensor_split:
        words += ["--tensor-split", ",".join(f"{share:g}" for share in _shares(plan.tensor_split))]
    if plan.threads is not None:
        words += ["--threads", str(plan.threads)]
    if plan.mmproj_path is not None:
        words += ["--mmproj", plan.mmproj_path]
    for path in plan.lora_paths:
        words += ["--lora", path]
    if plan.embedding:
        words.append("--embeddings")
    words += ["--fit", "off"]
    return _command(words)


def _vllm(plan: LaunchPlan, model: str, gpus: int) -> str:
    words = ["vllm", "serve", model, "--max-model-len", str(plan.context_length)]
    words += ["--max-num-seqs", str(plan.parallel)]
    words += ["--gpu-memory-utilization", f"{GPU_MEMORY_SHARE:.2f}"]
    if _is_quantised(plan):
        words += ["--kv-cache-dtype", "fp8"]
    if gpus > 1:
        words += ["--tensor-parallel-size", str(gpus)]
    return _command(words)


def _sglang(plan: LaunchPlan, model: str, gpus: int) -> str:
    words = ["python", "-m", "sglang.launch_server", "--model-path", model]
    words += ["--context-length", str(plan.context_length)]
    words += ["--max-running-requests", str(plan.parallel)]
    words += ["--mem-fraction-static", f"{GPU_MEMORY_SHARE:.2f}"]
    if _is_quantised(plan):
        words += ["--kv-cache-dtype", "fp8_e5m2"]
    if gpus > 1:
        words += ["--tp-size", str(gpus)]
    return _command(words)


def _ollama(plan: LaunchPlan) -> str:
    lines = [f"FROM {plan.model_path}", f"PARAMETER num_ctx {plan.context_length}"]
    lines.append(f"PARAMETER num_gpu {plan.gpu_layers}")
    lines.append(f"PARAMETER num_batch {plan.ubatch}")
    if plan.threads is not None:
        lines.append(f"PARAMETER num_thread {plan.threads}")
    lines += [f"PARAMETER stop {_quoted(text)}" for text in plan.stop]
    server = [f"OLLAMA_NUM_PARALLEL={plan.parallel}"]
    if _is_quantised(plan):
        server += ["OLLAMA_FLASH_ATTENTION=1", f"OLLAMA_KV_CACHE_TYPE={plan.kv_type_k}"]
    lines.append(f"# for the Ollama server's environment: {' '.join(server)}")
    if plan.cpu_moe_layers:
        lines.append(
            "# Ollama cannot keep only the experts on the CPU; lower num_gpu if the model does not fit"
        )
    return "\n".join(lines) + "\n"


def _is_quantised(plan: LaunchPlan) -> bool:
    return plan.kv_type_k not in ("f32", "f16", "bf16")


def _shares(split: tuple[float, ...]) -> tuple[float, ...]:
    whole = sum(split) or 1.0
    return tuple(round(share / whole, 3) for share in split)


def _command(words: list[str]) -> str:
    return shlex.join(words) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
