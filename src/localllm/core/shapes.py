"""The tensors of a model that is not here, from its published figures.

A catalogue entry says how many layers, heads and experts a model has; with its architecture that is enough to know
every tensor's shape, hence the size of any quantisation and the memory it will take, before a byte is downloaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from msgspec import Struct

from localllm.core.gguf import Value
from localllm.core.quant_mix import Shape


class Figures(Struct, frozen=True, kw_only=True):
    """A model's published figures; ``architecture`` is llama.cpp's name for it.

    ``n_head_kv`` and ``head_dim`` default as transformers do (n_head; n_embd / n_head). ``recurrent_*`` are for
    the gated delta net of Qwen's hybrids: (convolution width, inner size, state size, groups). ``latent`` is for
    MLA: (query rank or 0, key-value rank, rope size, key size without rope, value size).
    """

    architecture: str
    n_layer: int
    n_embd: int
    n_head: int
    n_vocab: int
    n_ff: int = 0
    n_head_kv: int | None = None
    head_dim: int | None = None
    head_dim_v: int | None = None
    n_expert: int = 0
    n_expert_used: int = 0
    n_ff_expert: int = 0
    n_ff_shared: int = 0
    leading_dense_layers: int = 0
    attention_interval: int = 4
    recurrent: tuple[int, int, int, int] | None = None
    latent: tuple[int, int, int, int, int] | None = None
    tied_embeddings: bool = False
    sliding_window: int | None = None
    trained_context_length: int | None = None

    @property
    def keys(self) -> int:
        return self.n_head if self.n_head_kv is None else self.n_head_kv

    @property
    def width(self) -> int:
        return self.head_dim or self.n_embd // self.n_head

    @property
    def width_v(self) -> int:
        return self.head_dim_v or self.width


_QKV_BIAS: Final = frozenset({"qwen2", "qwen2vl", "qwen2moe", "gpt-oss"})
_QK_NORM: Final = frozenset(
    {
        "qwen3",
        "qwen3moe",
        "qwen3vl",
        "qwen3vlmoe",
        "qwen35",
        "qwen35moe",
        "qwen3next",
        "gemma3",
        "gemma4",
        "olmo2",
    }
)
_POST_NORM: Final = frozenset({"gemma2", "gemma3", "gemma4", "olmo2", "glm4"})
_FUSED_QKV: Final = frozenset({"phi3"})
_FUSED_GATE: Final = frozenset({"phi3", "glm4", "chatglm"})
_FUSED_EXPERTS: Final = frozenset({"qwen35moe"})
_NO_GATE: Final = frozenset({"starcoder2", "phi2", "gpt2", "nemotron"})
_ONE_NORM: Final = frozenset({"command-r", "cohere2", "phi2"})
_DELTA_NET: Final = frozenset({"qwen3next", "qwen35", "qwen35moe"})
_GATED_QUERY: Final = _DELTA_NET


#: Values that change no size but without which llama.cpp does not read the family.
_FAMILY_VALUES: Final[dict[str, dict[str, Value]]] = {
    "cohere2": {"logit_scale": 1.0},
    "command-r": {"logit_scale": 1.0},
    "granite": {
        "logit_scale": 1.0,
        "residual_scale": 1.0,
        "embedding_scale": 1.0,
        "attention.scale": 1.0,
    },
}


def tensor_shapes(figures: Figures) -> tuple[Shape, ...]:
    """Every tensor of the model, in F32 or F16 as a converter leaves what is never quantised."""
    return tuple(_tensors(figures))


def header_values(f: Figures) -> dict[str, Value]:
    """The metadata a converter would write for this model, as far as sizes depend on it."""
    relative: dict[str, Value] = {
        "block_count": f.n_layer,
        "context_length": f.trained_context_length or 4_096,
        "embedding_length": f.n_embd,
        "feed_forward_length": f.n_ff or f.n_ff_expert,
        "attention.head_count": f.n_head,
        "attention.head_count_kv": f.keys,
        "attention.key_length": f.width,
        "attention.value_length": f.width_v,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "attention.layer_norm_epsilon": 1e-5,
        "rope.dimension_count": f.width,
        "rope.freq_base": 10_000.0,
        "vocab_size": f.n_vocab,
        **_FAMILY_VALUES.get(f.architecture, {}),
    }
    if f.n_expert:
        relative |= {
            "expert_count": f.n_expert,
            "expert_used_count": f.n_expert_used,
            "expert_feed_forward_length": f.n_ff_expert or f.n_ff,
            "leading_dense_block_count": f.leading_dense_layers,
        }
    if f.n_ff_shared:
        relative |= {
            "expert_shared_feed_forward_length": f.n_ff_shared,
            "expert_shared_count": max(f.n_ff_shared // max(f.n_ff_expert, 1), 1),
        }
    if f.sliding_window:
        relative["attention.sliding_window"] = f.sliding_window
    if f.latent is not None:
        query_rank, rank, rope, key, value = f.latent
        relative |= {
            "attention.head_count_kv": 1,
            "attention.key_length": rank + rope,
            "attention.value_length": rank,
            "attention.key_length_mla": key + rope,
            "attention.value_length_mla": value,
            "attention.kv_lora_rank": rank,
            "attention.q_lora_rank": query_rank,
            "rope.dimension_count": rope,
            "expert_weights_scale": 1.0,
            "expert_gating_func": 1,
        }
    if f.recurrent is not None:
        convolution, inner, state, groups = f.recurrent
        relative |= {
            "full_attention_interval": f.attention_interval,
            "rope.dimension_count": f.width // 4,
            "rope.dimension_sections": (f.width // 24, f.width // 24, f.width // 24, 0),
            "ssm.conv_kernel": convolution,
            "ssm.inner_size": inner,
            "ssm.state_size": state,
            "ssm.group_count": groups,
            "ssm.time_step_rank": inner // state,
        }
    found: dict[str, Value] = {"general.architecture": f.architecture}
    return found | {f"{f.architecture}.{key}": value for key, value in relative.items()}


def _tensors(f: Figures) -> Iterator[Shape]:
    yield _matrix("token_embd.weight", f.n_embd, f.n_vocab)
    for layer in range(f.n_layer):
        block = f"blk.{layer}."
        yield _vector(block + "attn_norm.weight", f.n_embd)
        yield from _mixer(f, block, layer)
        if f.architecture in _POST_NORM:
            yield _vector(block + "post_attention_norm.weight", f.n_embd)
            yield _vector(block + "post_ffw_norm.weight", f.n_embd)
        if f.architecture not in _ONE_NORM:
            yield _vector(block + "ffn_norm.weight", f.n_embd)
        if f.n_expert and layer >= f.leading_dense_layers:
            yield from _experts(f, block)
        else:
            yield from _feed_forward(f, block)
    yield _vector("output_norm.weight", f.n_embd)
    if not f.tied_embeddings:
        yield _matrix("output.weight", f.n_embd, f.n_vocab)


def _mixer(f: Figures, block: str, layer: int) -> Iterator[Shape]:
    if f.latent is not None:
        return _latent_attention(f, block, f.latent)
    if f.architecture in _DELTA_NET and f.recurrent is not None and (layer + 1) % f.attention_interval:
        return _delta_net(f, block, f.recurrent)
    return _attention(f, block)


def _attention(f: Figures, block: str) -> Iterator[Shape]:
    queries, keys, values = f.n_head * f.width, f.keys * f.width, f.keys * f.width_v
    if f.architecture in _FUSED_QKV:
        yield _matrix(block + "attn_qkv.weight", f.n_embd, queries + keys + values)
    else:
        gate = 2 if f.architecture in _GATED_QUERY else 1
        yield _matrix(block + "attn_q.weight", f.n_embd, queries * gate)
        yield _matrix(block + "attn_k.weight", f.n_embd, keys)
        yield _matrix(block + "attn_v.weight", f.n_embd, values)
    yield _matrix(block + "attn_output.weight", f.n_head * f.width_v, f.n_embd)
    if f.architecture in _QKV_BIAS:
        for name, size in (("q", queries), ("k", keys), ("v", values)):
            yield _vector(f"{block}attn_{name}.bias", size)
    if f.architecture in _QK_NORM:
        yield _vector(block + "attn_q_norm.weight", f.width)
        yield _vector(block + "attn_k_norm.weight", f.width)
    if f.architecture == "gpt-oss":
        yield _vector(block + "attn_output.bias", f.n_embd)
        yield _vector(block + "attn_sinks.weight", f.n_head)


def _latent_attention(f: Figures, block: str, latent: tuple[int, int, int, int, int]) -> Iterator[Shape]:
    query_rank, rank, rope, key, value = latent
    if query_rank:
        yield _matrix(block + "attn_q_a.weight", f.n_embd, query_rank)
        yield _vector(block + "attn_q_a_norm.weight", query_rank)
        yield _matrix(block + "attn_q_b.weight", query_rank, f.n_head * (key + rope))
    else:
        yield _matrix(block + "attn_q.weight", f.n_embd, f.n_head * (key + rope))
    yield _matrix(block + "attn_kv_a_mqa.weight", f.n_embd, rank + rope)
    yield _vector(block + "attn_kv_a_norm.weight", rank)
    yield Shape(block + "attn_k_b.weight", (key, rank, f.n_head), "F16")
    yield Shape(block + "attn_v_b.weight", (rank, value, f.n_head), "F16")
    yield _matrix(block + "attn_output.weight", f.n_head * value, f.n_embd)


def _delta_net(f: Figures, block: str, recurrent: tuple[int, int, int, int]) -> Iterator[Shape]:
    convolution, inner, state, groups = recurrent
    mixed, heads = inner + 2 * groups * state, inner // state
    yield _matrix(block + "attn_qkv.weight", f.n_embd, mixed)
    yield _matrix(block + "attn_gate.weight", f.n_embd, inner)
    yield Shape(block + "ssm_conv1d.weight", (convolution, mixed), "F32")
    yield _vector(block + "ssm_a", heads)
    yield _vector(block + "ssm_dt.bias", heads)
    yield _matrix(block + "ssm_alpha.weight", f.n_embd, heads)
    yield _matrix(block + "ssm_beta.weight", f.n_embd, heads)
    yield _vector(block + "ssm_norm.weight", state)
    yield _matrix(block + "ssm_out.weight", inner, f.n_embd)


def _feed_forward(f: Figures, block: str) -> Iterator[Shape]:
    if f.architecture in _FUSED_GATE:
        yield _matrix(block + "ffn_up.weight", f.n_embd, 2 * f.n_ff)
    else:
        if f.architecture not in _NO_GATE:
            yield _matrix(block + "ffn_gate.weight", f.n_embd, f.n_ff)
        yield _matrix(block + "ffn_up.weight", f.n_embd, f.n_ff)
    yield _matrix(block + "ffn_down.weight", f.n_ff, f.n_embd)


def _experts(f: Figures, block: str) -> Iterator[Shape]:
    yield Shape(block + "ffn_gate_inp.weight", (f.n_embd, f.n_expert), "F32")
    width = f.n_ff_expert or f.n_ff
    down = (width, f.n_embd, f.n_expert)
    if f.architecture in _FUSED_EXPERTS:
        shapes = {"gate_up": (f.n_embd, 2 * width, f.n_expert), "down": down}
    else:
        up = (f.n_embd, width, f.n_expert)
        shapes = {"gate": up, "up": up, "down": down}
    for name, shape in shapes.items():
        yield Shape(f"{block}ffn_{name}_exps.weight", shape, "F16")
        if f.architecture == "gpt-oss":
            yield Shape(f"{block}ffn_{name}_exps.bias", (shape[1], f.n_expert), "F32")
    if f.architecture == "gpt-oss":
        yield _vector(block + "ffn_gate_inp.bias", f.n_expert)
    if f.n_ff_shared:
        yield _matrix(block + "ffn_gate_shexp.weight", f.n_embd, f.n_ff_shared)
        yield _matrix(block + "ffn_up_shexp.weight", f.n_embd, f.n_ff_shared)
        yield _matrix(block + "ffn_down_shexp.weight", f.n_ff_shared, f.n_embd)
        if f.architecture in ("qwen2moe", "qwen3next", "qwen35moe"):
            yield _vector(block + "ffn_gate_inp_shexp.weight", f.n_embd)


def _matrix(name: str, columns: int, rows: int) -> Shape:
    return Shape(name, (columns, rows), "F16")


def _vector(name: str, size: int) -> Shape:
    return Shape(name, (size,), "F32")
