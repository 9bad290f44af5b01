"""The launch plan: everything an engine is told when it loads a model, decided by the planner before it starts."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

FlashAttention = Literal["auto", "on", "off"]

KV_CACHE_TYPES: tuple[str, ...] = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0")


class LaunchPlan(Struct, frozen=True, kw_only=True):
    """``context_length`` is what ONE sequence gets, in tokens; an engine multiplies by ``parallel`` where it must.

    ``gpu_layers`` counts llama.cpp's way (layers plus one for the output); None = all on the CPU for a machine
    without a GPU. ``cpu_moe_layers``: experts of the first N layers stay on the CPU. ``threads`` None = the engine's
    measured or default choice. ``chat_template`` overrides the file's own (Jinja text); ``stop`` are strings that
    always end an answer of this model. ``engine_model``: the name of a model that the engine keeps itself (Ollama).
    """

    model_path: str
    context_length: int
    parallel: int = 1
    unified_kv: bool = True
    kv_type_k: str = "f16"
    kv_type_v: str = "f16"
    flash_attention: FlashAttention = "auto"
    gpu_layers: int = 0
    cpu_moe_layers: int = 0
    tensor_split: tuple[float, ...] = ()
    main_gpu: int = 0
    threads: int | None = None
    batch_threads: int | None = None
    batch: int = 2048
    ubatch: int = 512
    swa_full: bool = False
    embedding: bool = False
    pooling: Literal["none", "mean", "cls", "last", "rank"] | None = None
    mmproj_path: str | None = None
    draft_path: str | None = None
    lora_paths: tuple[str, ...] = ()
    mmap: bool = True
    mlock: bool = False
    chat_template: str | None = None
    stop: tuple[str, ...] = ()
    prompt_lookup: bool = False
    engine_model: str | None = None
