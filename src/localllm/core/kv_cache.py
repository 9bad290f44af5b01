"""How much memory a model keeps per token and per sequence: keys and values, and recurrent state.

The closed form of llama.cpp's caches (llama-kv-cache.cpp, llama-kv-cache-iswa.cpp, llama-memory-recurrent.cpp). It
reproduces every measured size whose figures are known, byte for byte.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from localllm.core.facts import ModelFacts
from localllm.core.ggml import tensor_type
from localllm.core.launch import LaunchPlan

CELL_PADDING: Final = 256
"""llama-context.cpp pads the context of a sequence to this many tokens."""

CUDA_ROW_PADDING: Final = 512
"""ggml-cuda.cu: quantised tensors are allocated as if their last row were padded to this many elements."""


class LayerCache(Struct, frozen=True):
    """What one layer keeps, in bytes: ``keys_values`` grow with the context, ``state`` only with the sequences."""

    keys_values: int
    state: int

    @property
    def total(self) -> int:
        return self.keys_values + self.state


def padded(count: int, step: int = CELL_PADDING) -> int:
    return -(-count // step) * step


def total_context(plan: LaunchPlan) -> int:
    """Tokens in all sequences together: what llama.cpp calls n_ctx."""
    return padded(plan.context_length * plan.parallel)


def cells_and_streams(plan: LaunchPlan) -> tuple[int, int]:
    """(cells of one stream, streams) of a full-attention layer.

    A unified cache is one stream that all sequences share; otherwise each sequence has its own.
    """
    if plan.unified_kv:
        return total_context(plan), 1
    return padded(plan.context_length), plan.parallel


def sliding_cells(facts: ModelFacts, plan: LaunchPlan, *, spare_sequences: int = 0) -> int:
    """Cells of one stream of a layer that attends only to a window: each sequence's window, and a batch in flight."""
    cells, _ = cells_and_streams(plan)
    if facts.sliding_window is None or plan.swa_full:
        return cells
    sequences = plan.parallel + spare_sequences if plan.unified_kv else 1
    return min(cells, padded(facts.sliding_window * sequences + plan.ubatch))


def layer_caches(
    facts: ModelFacts, plan: LaunchPlan, *, cuda: bool = False, spare_sequences: int = 0
) -> tuple[LayerCache, ...]:
    """Each layer's cache. ``cuda`` adds the row padding of quantised tensors in CUDA's buffers.

    ``spare_sequences`` are those an engine keeps beyond ``parallel``, to remember prefixes.

    Raises:
        KeyError: an unknown KV type.
    """
    cells, streams = cells_and_streams(plan)
    window_cells = sliding_cells(facts, plan, spare_sequences=spare_sequences)
    state = 4 * sum(facts.state_elements) * (plan.parallel + spare_sequences)
    caches: list[LayerCache] = []
    for layer in range(facts.n_layer):
        keys_values = 0
        if facts.own_cache[layer]:
            sliding = facts.sliding_layers[layer]
            rows = (window_cells if sliding else cells) * streams
            keys, values = cache_widths(facts, layer)
            keys_values = _tensor_bytes(plan.kv_type_k, keys, rows, cuda=cuda)
            if not facts.latent_attention:
                keys_values += _tensor_bytes(plan.kv_type_v, values, rows, cuda=cuda)
            if facts.indexer_dim:
                keys_values += _tensor_bytes("f16", facts.indexer_dim, rows, cuda=cuda)
        caches.append(LayerCache(keys_values, state if facts.recurrent_layers[layer] else 0))
    return tuple(caches)


def cache_widths(facts: ModelFacts, layer: int) -> tuple[int, int]:
    """Elements per token of this layer's keys and values."""
    heads = facts.n_head_kv[layer]
    if facts.sliding_layers[layer]:
        return facts.head_dim_k_sliding * heads, facts.head_dim_v_sliding * heads
    return facts.head_dim_k * heads, facts.head_dim_v * heads


def bytes_per_token(facts: ModelFacts, kv_type_k: str, kv_type_v: str) -> int:
    """Cache bytes that one more token of context costs; sliding layers and recurrent state cost nothing."""
    total = 0
    for layer in range(facts.n_layer):
        if facts.own_cache[layer] and not facts.sliding_layers[layer]:
            keys, values = cache_widths(facts, layer)
            total += _tensor_bytes(kv_type_k, keys, 1) + _tensor_bytes("f16", facts.indexer_dim, 1)
            total += 0 if facts.latent_attention else _tensor_bytes(kv_type_v, values, 1)
    return total


def _tensor_bytes(type_name: str, width: int, rows: int, *, cuda: bool = False) -> int:
    kind = tensor_type(type_name)
    size = kind.row_bytes(width) * rows
    if cuda and kind.block_elements > 1 and width % CUDA_ROW_PADDING:
        size += kind.row_bytes(CUDA_ROW_PADDING - width % CUDA_ROW_PADDING)
    return size
