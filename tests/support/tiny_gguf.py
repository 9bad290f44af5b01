"""Tiny GGUF models with random weights that llama.cpp really loads and runs: one per kind of memory.

They say nothing sensible, but they exercise what differs between families: grouped heads, a sliding window, a
recurrent state, a latent cache, experts. A few MB each, written in well under a second, the same for the same seed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
from numpy.typing import NDArray

Architecture = Literal["llama", "qwen3", "gemma3", "lfm2", "mamba", "deepseek2", "qwen3moe"]
ARCHITECTURES: tuple[Architecture, ...] = (
    "llama",
    "qwen3",
    "gemma3",
    "lfm2",
    "mamba",
    "deepseek2",
    "qwen3moe",
)

Array = NDArray[np.float32]

END_OF_TEXT = "<|endoftext|>"
START_OF_TURN = "<|im_start|>"
END_OF_TURN = "<|im_end|>"
VOCABULARY_SIZE = 384

CHATML_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass
class Model:
    """What is written: header values relative to the architecture, and tensors by name (numpy order: rows first)."""

    keys: dict[str, object] = field(default_factory=dict)
    tensors: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Size:
    """Widths that all architectures share; small, but divisible by what kernels want."""

    n_layer: int = 4
    n_embd: int = 64
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 32
    n_ff: int = 128
    context_length: int = 2048


def write_tiny_gguf(
    path: Path,
    architecture: Architecture,
    *,
    chat_template: str | None = None,
    n_layer: int = 4,
    context_length: int = 2048,
    seed: int = 0,
    weights: Literal["f32", "f16"] = "f32",
) -> Path:
    """Write a model of this architecture to ``path``; ``weights`` is the type of its matrices."""
    size = Size(n_layer=n_layer, context_length=context_length)
    model = Model()
    _common(model, size)
    _BUILDERS[architecture](model, size, np.random.default_rng(seed))
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_name(f"tiny {architecture}")
    writer.add_file_type(1 if weights == "f16" else 0)
    for key, value in model.keys.items():
        _add(writer, f"{architecture}.{key}", value)
    _add_tokenizer(writer, chat_template)
    for name, array in model.tensors.items():
        is_matrix = (
            array.ndim > 1 and "conv" not in name and "ssm_a" not in name and "ffn_gate_inp" not in name
        )
        stored = array.astype(np.float16) if is_matrix and weights == "f16" else array.astype(np.float32)
        writer.add_tensor(name, stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
    else:
        raise TypeError(f"{key}: {value!r}")


def _common(model: Model, size: Size) -> None:
    model.keys |= {
        "context_length": size.context_length,
        "embedding_length": size.n_embd,
        "block_count": size.n_layer,
        "feed_forward_length": size.n_ff,
        "attention.head_count": size.n_head,
        "attention.head_count_kv": size.n_head_kv,
        "attention.key_length": size.head_dim,
        "attention.value_length": size.head_dim,
        "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": size.head_dim,
        "rope.freq_base": 10000.0,
        "vocab_size": VOCABULARY_SIZE,
    }


# ---------------------------------------------------------------- architectures


def _matrix(rng: np.random.Generator, *shape: int, scale: float = 1.0) -> Array:
    """Rows first; scaled so that a unit input gives an output of about ``scale``."""
    drawn: Array = rng.standard_normal(shape, dtype=np.float32)
    return drawn * np.float32(scale / np.sqrt(shape[-1]))


def _norm(rng: np.random.Generator, size: int) -> Array:
    return (1 + 0.1 * rng.standard_normal(size)).astype(np.float32)


def _ends(model: Model, size: Size, rng: np.random.Generator, *, tied: bool = False) -> None:
    # tied embeddings are small: a token that outweighs what the blocks add would only ever repeat itself
    scale = 0.25 if tied else 8.0
    model.tensors["token_embd.weight"] = _matrix(rng, VOCABULARY_SIZE, size.n_embd, scale=scale)
    model.tensors["output_norm.weight"] = _norm(rng, size.n_embd) * np.float32(8 if tied else 1)
    if not tied:
        model.tensors["output.weight"] = _matrix(rng, VOCABULARY_SIZE, size.n_embd, scale=3.0)


def _attention(model: Model, block: str, size: Size, rng: np.random.Generator, *, head_norms: bool) -> None:
    wide, narrow = size.n_head * size.head_dim, size.n_head_kv * size.head_dim
    model.tensors |= {
        f"{block}attn_q.weight": _matrix(rng, wide, size.n_embd, scale=2.0),
        f"{block}attn_k.weight": _matrix(rng, narrow, size.n_embd, scale=2.0),
        f"{block}attn_v.weight": _matrix(rng, narrow, size.n_embd),
        f"{block}attn_output.weight": _matrix(rng, size.n_embd, wide),
    }
    if head_norms:
        model.tensors[f"{block}attn_q_norm.weight"] = _norm(rng, size.head_dim)
        model.tensors[f"{block}attn_k_norm.weight"] = _norm(rng, size.head_dim)


def _feed_forward(model: Model, block: str, size: Size, rng: np.random.Generator) -> None:
    model.tensors |= {
        f"{block}ffn_norm.weight": _norm(rng, size.n_embd),
        f"{block}ffn_gate.weight": _matrix(rng, size.n_ff, size.n_embd),
        f"{block}ffn_up.weight": _matrix(rng, size.n_ff, size.n_embd),
        f"{block}ffn_down.weight": _matrix(rng, size.n_embd, size.n_ff),
    }


def _experts(
    model: Model, block: str, size: Size, rng: np.random.Generator, *, count: int, width: int
) -> None:
    model.tensors |= {
        f"{block}ffn_norm.weight": _norm(rng, size.n_embd),
        f"{block}ffn_gate_inp.weight": _matrix(rng, count, size.n_embd),
        f"{block}ffn_gate_exps.weight": _matrix(rng, count, width, size.n_embd),
        f"{block}ffn_up_exps.weight": _matrix(rng, count, width, size.n_embd),
        f"{block}ffn_down_exps.weight": _matrix(rng, count, size.n_embd, width),
    }


def _llama(model: Model, size: Size, rng: np.random.Generator) -> None:
    _ends(model, size, rng)
    for layer in range(size.n_layer):
        block = f"blk.{layer}."
        model.tensors[f"{block}attn_norm.weight"] = _norm(rng, size.n_embd)
        _attention(model, block, size, rng, head_norms=False)
        _feed_forward(model, block, size, rng)


def _qwen3(model: Model, size: Size, rng: np.random.Generator) -> None:
    _ends(model, size, rng, tied=True)
    for layer in range(size.n_layer):
        block = f"blk.{layer}."
        model.tensors[f"{block}attn_norm.weight"] = _norm(rng, size.n_embd)
        _attention(model, block, size, rng, head_norms=True)
        _feed_forward(model, block, size, rng)


def _gemma3(model: Model, size: Size, rng: np.random.Generator) -> None:
    """Window of 128 tokens; llama.cpp lets every sixth layer see everything."""
    model.keys["attention.sliding_window"] = 128
    _qwen3(model, size, rng)
    for layer in range(size.n_layer):
        for name in ("post_attention_norm", "post_ffw_norm"):
            model.tensors[f"blk.{layer}.{name}.weight"] = _norm(rng, size.n_embd)


def _lfm2(model: Model, size: Size, rng: np.random.Generator) -> None:
    """Short convolutions (a recurrent state) in all layers but every second, which attends."""
    cache = 3
    size = replace(size, head_dim=size.n_embd // size.n_head)  # llama.cpp allows this architecture no other
    for name in ("attention.key_length", "attention.value_length", "rope.dimension_count"):
        model.keys[name] = size.head_dim
    attends = [layer % 2 == 1 for layer in range(size.n_layer)]
    model.keys["attention.head_count_kv"] = [size.n_head_kv if a else 0 for a in attends]
    model.keys["shortconv.l_cache"] = cache
    _ends(model, size, rng, tied=True)
    model.tensors["token_embd_norm.weight"] = model.tensors.pop("output_norm.weight")
    for layer in range(size.n_layer):
        block = f"blk.{layer}."
        model.tensors[f"{block}attn_norm.weight"] = _norm(rng, size.n_embd)
        if attends[layer]:
            _attention(model, block, size, rng, head_norms=True)
        else:
            model.tensors |= {
                f"{block}shortconv.conv.weight": _matrix(rng, size.n_embd, cache),
                f"{block}shortconv.in_proj.weight": _matrix(rng, 3 * size.n_embd, size.n_embd),
                f"{block}shortconv.out_proj.weight": _matrix(rng, size.n_embd, size.n_embd),
            }
        _feed_forward(model, block, size, rng)


def _mamba(model: Model, size: Size, rng: np.random.Generator) -> None:
    """No attention at all: a convolution and a state space per layer."""
    kernel, inner, state, rank = 4, 2 * size.n_embd, 16, 4
    for name in [
        key
        for key in model.keys
        if key.startswith(("attention.head", "attention.key", "attention.v", "rope"))
    ]:
        del model.keys[name]
    model.keys |= {
        "feed_forward_length": 0,
        "attention.head_count": 0,
        "ssm.conv_kernel": kernel,
        "ssm.inner_size": inner,
        "ssm.state_size": state,
        "ssm.time_step_rank": rank,
    }
    _ends(model, size, rng)
    for layer in range(size.n_layer):
        block = f"blk.{layer}."
        model.tensors |= {
            f"{block}attn_norm.weight": _norm(rng, size.n_embd),
            f"{block}ssm_in.weight": _matrix(rng, 2 * inner, size.n_embd),
            f"{block}ssm_conv1d.weight": _matrix(rng, inner, kernel),
            f"{block}ssm_conv1d.bias": np.zeros(inner, np.float32),
            f"{block}ssm_x.weight": _matrix(rng, rank + 2 * state, inner),
            f"{block}ssm_dt.weight": _matrix(rng, inner, rank),
            f"{block}ssm_dt.bias": rng.uniform(-4, -2, inner).astype(np.float32),
            f"{block}ssm_a": -np.tile(np.arange(1, state + 1, dtype=np.float32), (inner, 1)),
            f"{block}ssm_d": np.ones(inner, np.float32),
            f"{block}ssm_out.weight": _matrix(rng, size.n_embd, inner),
        }


def _deepseek2(model: Model, size: Size, rng: np.random.Generator) -> None:
    """A latent of 64 + 16 numbers per token instead of keys and values; one dense layer, then experts."""
    query_rank, rank, rope, key, value = 48, 64, 16, 32, 32
    count, width = 4, 32
    model.keys |= {
        "attention.head_count_kv": 1,
        "attention.key_length": rank + rope,
        "attention.value_length": rank,
        "attention.key_length_mla": key + rope,
        "attention.value_length_mla": value,
        "attention.q_lora_rank": query_rank,
        "attention.kv_lora_rank": rank,
        "rope.dimension_count": rope,
        "leading_dense_block_count": 1,
        "expert_count": count,
        "expert_used_count": 2,
        "expert_feed_forward_length": width,
        "expert_shared_count": 1,
        "expert_weights_scale": 1.0,
        "expert_weights_norm": False,
        "expert_gating_func": 1,
    }
    _ends(model, size, rng)
    for layer in range(size.n_layer):
        block = f"blk.{layer}."
        model.tensors |= {
            f"{block}attn_norm.weight": _norm(rng, size.n_embd),
            f"{block}attn_q_a.weight": _matrix(rng, query_rank, size.n_embd),
            f"{block}attn_q_a_norm.weight": _norm(rng, query_rank),
            f"{block}attn_q_b.weight": _matrix(rng, size.n_head * (key + rope), query_rank, scale=2.0),
            f"{block}attn_kv_a_mqa.weight": _matrix(rng, rank + rope, size.n_embd, scale=2.0),
            f"{block}attn_kv_a_norm.weight": _norm(rng, rank),
            f"{block}attn_k_b.weight": _matrix(rng, size.n_head, rank, key),
            f"{block}attn_v_b.weight": _matrix(rng, size.n_head, value, rank),
            f"{block}attn_output.weight": _matrix(rng, size.n_embd, size.n_head * value),
        }
        if layer == 0:
            _feed_forward(model, block, size, rng)
            continue
        _experts(model, block, size, rng, count=count, width=width)
        model.tensors |= {
            f"{block}ffn_gate_shexp.weight": _matrix(rng, width, size.n_embd),
            f"{block}ffn_up_shexp.weight": _matrix(rng, width, size.n_embd),
            f"{block}ffn_down_shexp.weight": _matrix(rng, size.n_embd, width),
        }


def _qwen3moe(model: Model, size: Size, rng: np.random.Generator) -> None:
    count, width = 4, 64
    model.keys |= {"expert_count": count, "expert_used_count": 2, "expert_feed_forward_length": width}
    _ends(model, size, rng)
    for layer in range(size.n_layer):
        block = f"blk.{layer}."
        model.tensors[f"{block}attn_norm.weight"] = _norm(rng, size.n_embd)
        _attention(model, block, size, rng, head_norms=True)
        _experts(model, block, size, rng, count=count, width=width)


_BUILDERS: dict[Architecture, Callable[[Model, Size, np.random.Generator], None]] = {
    "llama": _llama,
    "qwen3": _qwen3,
    "gemma3": _gemma3,
    "lfm2": _lfm2,
    "mamba": _mamba,
    "deepseek2": _deepseek2,
    "qwen3moe": _qwen3moe,
}


# ---------------------------------------------------------------- tokenizer


def _byte_alphabet() -> list[str]:
    """GPT-2's printable stand-ins for the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    stand_ins = dict.fromkeys(printable, "")
    extra = 0
    letters: list[str] = []
    for byte in range(256):
        if byte in stand_ins:
            letters.append(chr(byte))
        else:
            letters.append(chr(256 + extra))
            extra += 1
    return letters


def _add_tokenizer(writer: gguf.GGUFWriter, chat_template: str | None) -> None:
    """Byte-level BPE: every byte is a token, so every text can be said; a few merges, so that BPE has work to do."""
    space = _byte_alphabet()[32]
    merges = [
        "t h",
        "i n",
        "e r",
        "a n",
        f"{space} t",
        f"{space}t h",
        f"{space} a",
        "th e",
        f"{space}th e",
        "an d",
    ]
    tokens = [*_byte_alphabet(), *(merge.replace(" ", "") for merge in merges)]
    special = [END_OF_TEXT, START_OF_TURN, END_OF_TURN]
    kinds = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * len(special)
    first_special = len(tokens)
    tokens += special
    unused = VOCABULARY_SIZE - len(tokens)
    tokens += [f"<unused{i}>" for i in range(unused)]
    kinds += [gguf.TokenType.UNUSED] * unused
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([int(kind) for kind in kinds])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(first_special)
    writer.add_eos_token_id(first_special)
    writer.add_eot_token_id(first_special + 2)
    writer.add_pad_token_id(first_special)
    writer.add_add_bos_token(False)
    if chat_template is not None:
        writer.add_chat_template(chat_template)
