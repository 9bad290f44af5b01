"""Headers of many families, small and without tensors: llama.cpp sizes caches and scratch from the keys alone."""

from __future__ import annotations

from typing import Final

from localllm.core.gguf import GGUFHeader, Value

LAYERS: Final = 12

_COMMON: Final[dict[str, Value]] = {
    "block_count": LAYERS,
    "context_length": 32768,
    "embedding_length": 512,
    "feed_forward_length": 1024,
    "attention.head_count": 8,
    "attention.head_count_kv": 2,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "attention.layer_norm_rms_epsilon": 1e-6,
    "attention.layer_norm_epsilon": 1e-5,
    "rope.dimension_count": 64,
    "rope.freq_base": 10000.0,
    "vocab_size": 1000,
}
_STATE: Final[dict[str, Value]] = {
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 1024,
    "ssm.state_size": 16,
    "ssm.time_step_rank": 16,
    "ssm.group_count": 1,
    "ssm.dt_b_c_rms": False,
}
_EXPERTS: Final[dict[str, Value]] = {
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_feed_forward_length": 256,
    "expert_shared_count": 1,
    "expert_shared_feed_forward_length": 256,
    "leading_dense_block_count": 1,
    "expert_weights_scale": 1.0,
    "expert_weights_norm": True,
    "expert_gating_func": 2,
    "expert_group_count": 1,
    "expert_group_used_count": 1,
}
_SCALES: Final[dict[str, Value]] = {
    "logit_scale": 1.0,
    "residual_scale": 1.0,
    "embedding_scale": 1.0,
    "attention.scale": 1.0,
}
_EVERY_THIRD: Final = tuple(0 if layer % 3 else 2 for layer in range(LAYERS))
_WINDOW: Final[dict[str, Value]] = {"attention.sliding_window": 512}

FAMILIES: Final[dict[str, dict[str, Value]]] = {
    "afmoe": _EXPERTS | _WINDOW,
    "baichuan": {},
    "bailingmoe2": _EXPERTS,
    "bitnet": {},
    "chatglm": {},
    "cohere2": _WINDOW | {"logit_scale": 1.0},
    "command-r": {"logit_scale": 1.0},
    "deci": {},
    "ernie4_5-moe": _EXPERTS | {"interleave_moe_layer_step": 1},
    "exaone": {},
    "exaone4": _WINDOW,
    "falcon-h1": _STATE,
    "gemma3n": {
        "block_count": 30,
        "attention.sliding_window": 256,
        "altup.active_idx": 0,
        "altup.num_inputs": 4,
    },
    "glm4": {},
    "granitehybrid": _STATE | _EXPERTS | _SCALES | {"attention.head_count_kv": _EVERY_THIRD},
    "internlm2": {},
    "jamba": _STATE | _EXPERTS | {"attention.head_count_kv": _EVERY_THIRD, "ssm.time_step_rank": 32},
    "lfm2": {"attention.head_count_kv": _EVERY_THIRD, "shortconv.l_cache": 3},
    "lfm2moe": _EXPERTS | {"attention.head_count_kv": _EVERY_THIRD, "shortconv.l_cache": 3},
    "llama4": _EXPERTS | {"interleave_moe_layer_step": 2},
    "mamba": _STATE | {"ssm.time_step_rank": 32},
    "mamba2": _STATE,
    "mimo2": _EXPERTS
    | _WINDOW
    | {"attention.sliding_window_pattern": tuple(layer % 6 != 5 for layer in range(LAYERS))},
    "minicpm3": {
        "attention.q_lora_rank": 128,
        "attention.kv_lora_rank": 64,
        "attention.key_length": 96,
        "attention.head_count_kv": 8,
        "rope.dimension_count": 32,
    },
    "mistral3": {},
    "nemotron_h": _STATE
    | {
        "attention.head_count_kv": tuple((0, 2, 0)[layer % 3] for layer in range(LAYERS)),
        "feed_forward_length": tuple((0, 0, 1024)[layer % 3] for layer in range(LAYERS)),
    },
    "olmo2": _WINDOW,
    "phi3": _WINDOW | {"rope.scaling.original_context_length": 4096},
    "plamo3": _WINDOW,
    "qwen2moe": _EXPERTS,
    "rwkv7": {
        "wkv.head_size": 64,
        "attention.decay_lora_rank": 64,
        "attention.iclr_lora_rank": 64,
        "attention.value_residual_mix_lora_rank": 32,
        "attention.gate_lora_rank": 128,
        "token_shift_count": 2,
        "attention.head_count": 0,
    },
    "seed_oss": {},
    "smallthinker": _EXPERTS | _WINDOW,
    "smollm3": {},
    "step35": _EXPERTS
    | _WINDOW
    | {"attention.sliding_window_pattern": tuple(layer % 4 != 3 for layer in range(LAYERS))},
}


def family_header(architecture: str) -> GGUFHeader:
    metadata: dict[str, Value] = {"general.architecture": architecture}
    metadata |= {f"{architecture}.{key}": value for key, value in (_COMMON | FAMILIES[architecture]).items()}
    return GGUFHeader(version=3, metadata=metadata, tensors=(), alignment=32, data_offset=0, size_bytes=0)
