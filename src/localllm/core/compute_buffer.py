"""The scratch memory of one computation step, per device: llama.cpp's "compute buffer".

ggml reserves the largest set of intermediate results that live at once in the worst step (a full ubatch at full
context). Which results those are was read off llama.cpp's own sizing of 60 models (``engines/llama_cpp/simulate``
asks it): each *stage* below is one moment of the graph, and the buffer is the largest stage. ggml frees and reuses
the rest. Tests hold these formulas to the simulation within a few percent, and never below it.
"""

from __future__ import annotations

from msgspec import Struct

from localllm.core.facts import ModelFacts
from localllm.core.ggml import tensor_type
from localllm.core.kv_cache import cache_widths, cells_and_streams, sliding_cells
from localllm.core.launch import LaunchPlan

_F32 = 4
_F16 = 2

GPU_OFFLOAD_BATCH = 32
"""From this many tokens on, weights on the CPU are copied to the GPU and computed there (ggml-cuda.cu)."""


class Share(Struct, frozen=True, kw_only=True):
    """What a device computes: ``outputs`` tokens of a batch get logits there (0 = the output is elsewhere).

    ``staged_bytes``: the largest CPU-resident weight that passes through this GPU; ``staged_expert``: it belongs to
    experts, so what is computed with it is their first product.
    """

    gpu: bool
    outputs: int
    flash_attention: bool
    staged_bytes: int = 0
    staged_expert: bool = False


class _Widths(Struct, frozen=True):
    """Bytes of one F32 row of each kind, times the batch: ``stream`` the residual, ``queries``/``mixed`` attention's
    input and result, ``keys`` and ``values`` one layer's, ``dense`` a feed-forward's inner product."""

    stream: int
    queries: int
    mixed: int
    keys: int
    values: int
    dense: int


def compute_bytes(facts: ModelFacts, plan: LaunchPlan, share: Share) -> int:
    """Scratch bytes on a device that computes this share of the model."""
    batch = max(1, min(plan.ubatch, plan.context_length * plan.parallel))
    widths = _widths(facts, batch)
    mask = _mask_bytes(facts, plan, batch, share)
    stages = [
        _feed_forward(facts, plan, widths, batch) + mask,
        _logits(facts, widths, share.outputs),
        _recurrence(facts, plan, widths, batch) + mask,
    ]
    if any(facts.own_cache) or not facts.causal:
        stages.append(_attention(facts, plan, widths, batch, share) + mask)
    if share.gpu:
        # a GPU build writes one result in place that the CPU's keeps apart
        stages = [stage - widths.stream for stage in stages]
    if share.staged_bytes and batch >= GPU_OFFLOAD_BATCH:
        stages.append(share.staged_bytes + _with_staged(facts, widths, batch, share) + mask)
    return max(stages)


def gpu_bytes_from_simulation(facts: ModelFacts, plan: LaunchPlan, cpu_bytes: int) -> int:
    """What a GPU build reserves where a CPU build's simulation said ``cpu_bytes`` (all layers on one device).

    The GPU keeps one row of the residual less, unless the cache is quantised; but its flash attention converts a
    quantised cache to f16, which a CPU build never does.
    """
    batch = max(1, min(plan.ubatch, plan.context_length * plan.parallel))
    widths = _widths(facts, batch)
    if not _quantised_cache(plan):
        return cpu_bytes - widths.stream
    share = Share(gpu=True, outputs=0, flash_attention=True)
    attention = _attention(facts, plan, widths, batch, share) + _mask_bytes(facts, plan, batch, share)
    return max(cpu_bytes, attention - widths.stream)


def output_bytes(facts: ModelFacts, plan: LaunchPlan, sequences: int) -> int:
    """The host buffer that results are copied to: a row of logits per sequence, and its embedding if asked for."""
    width = facts.n_vocab + (facts.n_embd if plan.embedding else 0)
    return sequences * width * _F32


def output_rows(facts: ModelFacts, plan: LaunchPlan, spare: int) -> int:
    """How many tokens of a batch get logits: one per sequence and ``spare`` ones for drafts.

    A model that embeds computes them for every token on the way, unless it has no vocabulary to answer with.
    """
    if not facts.causal:
        return 0
    return plan.ubatch if plan.embedding else min(plan.batch, plan.parallel + spare)


def host_bytes(facts: ModelFacts, plan: LaunchPlan) -> int:
    """The inputs of a batch in host memory when all layers are on GPUs: embeddings, and the mask in F32."""
    batch = max(1, min(plan.ubatch, plan.context_length * plan.parallel))
    share = Share(gpu=True, outputs=0, flash_attention=False)
    return facts.n_embd * batch * _F32 + _mask_bytes(facts, plan, batch, share)


def _widths(facts: ModelFacts, batch: int) -> _Widths:
    row = batch * _F32
    keys, values = max((cache_widths(facts, layer) for layer in range(facts.n_layer)), default=(0, 0))
    return _Widths(
        stream=facts.n_embd * row,
        queries=max(facts.n_head, default=0) * facts.head_dim_k * row,
        mixed=facts.attention_width * row,
        keys=keys * row,
        values=values * row,
        dense=facts.n_ff * row,
    )


def _mask_bytes(facts: ModelFacts, plan: LaunchPlan, batch: int, share: Share) -> int:
    """Which cell each token may see: F16 for flash attention, else F32; a second one for the sliding window."""
    if not any(facts.own_cache):
        return 0 if facts.causal else batch * batch * (_F16 if share.flash_attention else _F32)
    full, _ = cells_and_streams(plan)
    caching = [sliding for sliding, own in zip(facts.sliding_layers, facts.own_cache, strict=True) if own]
    cells = full if not all(caching) else 0
    if any(caching):
        cells += sliding_cells(facts, plan)
    return cells * batch * (_F16 if share.flash_attention else _F32)


def _feed_forward(facts: ModelFacts, plan: LaunchPlan, widths: _Widths, batch: int) -> int:
    """Gate, up and their product, beside the residual; or all experts' results and their weighted copies.

    Without a gate the activation is computed in place.
    """
    hybrid = any(facts.recurrent_layers)
    around = widths.stream * (1 if hybrid and facts.is_moe else 3)
    around += widths.mixed if facts.causal and not hybrid else 0
    if _quantised_cache(plan) and widths.mixed < widths.stream:
        around += widths.mixed  # attention's result is rotated, and does not fit where the residual was
    inner = (3 if facts.gated else 1) * widths.dense
    if facts.is_moe:
        row = facts.n_expert_used * batch * _F32
        inner = max(
            3 * facts.n_ff_expert * row,
            2 * facts.n_embd * row + widths.stream,
            inner if _has_dense_layer(facts) else 0,
        )
        inner += facts.n_expert * batch * _F32
    return inner + around


def _has_dense_layer(facts: ModelFacts) -> bool:
    return any(t.name.endswith("ffn_up.weight") for t in facts.tensors[:64])


def _logits(facts: ModelFacts, widths: _Widths, outputs: int) -> int:
    return outputs * (facts.n_vocab + facts.n_embd) * _F32 + widths.stream if outputs else 0


def _attention(facts: ModelFacts, plan: LaunchPlan, widths: _Widths, batch: int, share: Share) -> int:
    cells, streams = cells_and_streams(plan)
    around = 3 * widths.stream + 2 * widths.queries + widths.keys + widths.values
    gated = any(facts.recurrent_layers) and facts.state_elements[1] > 0
    if gated:
        around += widths.stream + widths.mixed
    if any(facts.sliding_layers) and (_quantised_cache(plan) or not share.flash_attention):
        around += widths.queries
    if share.flash_attention:
        return around + _converted_cache(facts, plan, cells * streams, share)
    if facts.latent_attention:
        around += cells * facts.head_dim_k * _F16 + widths.mixed
    return around + max(facts.n_head) * cells * batch * _F32


def _quantised_cache(plan: LaunchPlan) -> bool:
    return any(tensor_type(kind).block_elements > 1 for kind in (plan.kv_type_k, plan.kv_type_v))


def _converted_cache(facts: ModelFacts, plan: LaunchPlan, rows: int, share: Share) -> int:
    """CUDA's flash attention reads f16: a quantised cache is converted, one layer's keys and values at a time."""
    if not share.gpu or not _quantised_cache(plan):
        return 0
    largest = 0
    for layer in range(facts.n_layer):
        if facts.own_cache[layer] and not facts.sliding_layers[layer]:
            keys, values = cache_widths(facts, layer)
            size = keys if tensor_type(plan.kv_type_k).block_elements > 1 else 0
            size += values if tensor_type(plan.kv_type_v).block_elements > 1 else 0
            largest = max(largest, size)
    return largest * rows * _F16


def _recurrence(facts: ModelFacts, plan: LaunchPlan, widths: _Widths, batch: int) -> int:
    """A recurrent layer's convolution and scan, and the states of all sequences as they are rewritten."""
    if not any(facts.recurrent_layers):
        return 0
    convolution, state = facts.state_elements
    states = 3 * (convolution + state) * plan.parallel * _F32
    inner = _inner_width(facts) * batch * _F32
    mixed = convolution // 3 * batch * _F32 if state else widths.stream
    scan = 2 * mixed + 4 * inner + 2 * widths.stream
    return max(scan, mixed + 4 * inner + widths.stream + states)


def _inner_width(facts: ModelFacts) -> int:
    """Width of the recurrent branch, from the tensor that leads out of it."""
    for tensor in facts.tensors:
        if tensor.name.endswith("ssm_out.weight"):
            return tensor.shape[0]
    return facts.n_embd


def _with_staged(facts: ModelFacts, widths: _Widths, batch: int, share: Share) -> int:
    """What lives beside a weight that passes through the GPU."""
    if share.staged_expert:
        return 2 * facts.n_ff_expert * facts.n_expert_used * batch * _F32 + widths.stream
    return 3 * widths.dense + 2 * widths.stream + widths.mixed
