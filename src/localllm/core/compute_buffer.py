"""The scratch memory of one computation step, per device: llama.cpp's "compute buffer".

ggml reserves the largest set of intermediate results that live at once in the worst step (a full ubatch at full
context). Which results those are was read off llama.cpp's own sizing of 60 models (``engines/llama_cpp/simulate``
asks it): each *stage* below is one moment of the graph, and the buffer is the largest stage. ggml frees and reuses
the rest. Tests hold these formulas to the simulation within a few percent, and never below it.
"""

from __future__ import annotations

from msgspec import Struct

from localllm.core.facts import ModelFacts
from localllm.core.families import HYBRID_BY_INTERVAL
from localllm.core.ggml import tensor_type
from localllm.core.kv_cache import cache_widths, cells_and_streams, sliding_cells
from localllm.core.launch import LaunchPlan

_F32 = 4
_F16 = 2

_TIME_MIXING = frozenset({"rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"})

GPU_OFFLOAD_BATCH = 32
"""From this many tokens on, weights on the CPU are copied to the GPU and computed there (ggml-cuda.cu)."""


class Share(Struct, frozen=True, kw_only=True):
    """What a device computes: ``outputs`` tokens of a batch get logits there (0 = the output is elsewhere).

    ``staged_bytes``: the largest CPU-resident weight that passes through this GPU; ``staged_expert``: it belongs to
    experts, so what is computed with it is their first product. ``spare_sequences`` are the engine's own.
    ``residual_rows``: copies of the residual beside a feed-forward on the CPU, where the build is known to keep
    another number than most.
    """

    gpu: bool
    outputs: int
    flash_attention: bool
    staged_bytes: int = 0
    staged_expert: bool = False
    spare_sequences: int = 0
    residual_rows: int | None = None


def compute_bytes(facts: ModelFacts, plan: LaunchPlan, share: Share) -> int:
    """Scratch bytes on a device that computes this share of the model."""
    step = _Step(facts, plan, share)
    stages = [step.feed_forward() + step.mask(), step.logits(), step.per_layer_inputs()]
    if any(facts.recurrent_layers):
        stages.append(step.recurrence() + step.mask())
    if any(facts.own_cache) or not facts.causal:
        stages.append(step.attention() + step.mask())
    if share.gpu:
        # a GPU build writes one result in place that the CPU's keeps apart
        stages = [stage - step.stream for stage in stages]
    if share.staged_bytes and step.batch >= GPU_OFFLOAD_BATCH:
        stages.append(step.beside_staged() + share.staged_bytes + step.mask())
    return max(stages)


def gpu_bytes_from_simulation(facts: ModelFacts, plan: LaunchPlan, cpu_bytes: int) -> int:
    """What a GPU build reserves where a CPU build's simulation said ``cpu_bytes`` (all layers on one device).

    The GPU keeps one row of the residual less, unless the cache is quantised; but its flash attention converts a
    quantised cache to f16, which a CPU build never does.
    """
    step = _Step(facts, plan, Share(gpu=True, outputs=0, flash_attention=True))
    if not step.quantised_cache:
        return cpu_bytes - step.stream
    return max(cpu_bytes, step.attention() + step.mask() - step.stream)


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
    step = _Step(facts, plan, Share(gpu=True, outputs=0, flash_attention=False))
    return step.stream + step.mask()


class _Step:
    """One batch through the model on one device. Sizes are bytes of F32 rows, times the batch.

    ``stream`` is the residual; ``queries`` and ``mixed`` are attention's input and result.
    """

    def __init__(self, facts: ModelFacts, plan: LaunchPlan, share: Share) -> None:
        self._facts = facts
        self._plan = plan
        self._share = share
        self.batch = max(1, min(plan.ubatch, plan.context_length * plan.parallel))
        self._row = self.batch * _F32
        self.stream = facts.n_embd * self._row
        self._queries = max(facts.n_head, default=0) * facts.head_dim_k * self._row
        self._mixed = facts.attention_width * self._row
        kinds = (plan.kv_type_k, plan.kv_type_v)
        self.quantised_cache = any(tensor_type(kind).block_elements > 1 for kind in kinds)
        self._is_hybrid = any(facts.recurrent_layers)
        self._is_delta_net = facts.architecture in HYBRID_BY_INTERVAL
        self._slides = any(facts.sliding_layers)

    def mask(self) -> int:
        """Which cell each token may see: F16 for flash attention, else F32; a second one for the sliding window."""
        facts = self._facts
        element = _F16 if self._share.flash_attention else _F32
        if not any(facts.own_cache):
            return 0 if facts.causal else self.batch * self.batch * element
        return sum(self._cells()) * self.batch * element

    def feed_forward(self) -> int:
        """Gate, up and their product, beside the residual; or all experts' results and their weighted copies.

        Without a gate the activation is computed in place.
        """
        facts = self._facts
        around = self._beside_feed_forward()
        dense = (3 if facts.gated else 1) * facts.n_ff * self._row
        if not facts.is_moe:
            return around + dense
        used = facts.n_expert_used * self._row
        experts = max(3 * facts.n_ff_expert * used, 2 * facts.n_embd * used + self.stream)
        routing = facts.n_expert * self._row
        return around + routing + max(experts, dense if _has_dense_layer(facts) else 0)

    def per_layer_inputs(self) -> int:
        """Gemma's extra inputs of all layers, gathered, projected, normalised and added at the start."""
        inputs = self._facts.per_layer_inputs * self._row
        return 4 * inputs + 7 * self.stream if inputs else 0

    def _beside_feed_forward(self) -> int:
        facts = self._facts
        if facts.per_layer_inputs:
            # they stay to the end, and so do the four predictions that each layer mixes
            return facts.per_layer_inputs * self._row + 11 * self.stream
        if self._share.residual_rows is not None and not self._share.gpu:
            return self._share.residual_rows * self.stream
        rows = 3
        if self._is_hybrid and facts.is_moe:
            rows = 1 if self._is_delta_net else 2
        around = self.stream * rows
        around += self._mixed if facts.causal and not self._is_hybrid else 0
        if self.quantised_cache and self._mixed < self.stream:
            around += self._mixed  # attention's result is rotated, and does not fit where the residual was
        return around

    def _cells(self) -> tuple[int, int]:
        """Cells of one stream of the layers that see everything, and of those that slide; 0 = there are none."""
        facts = self._facts
        sliding = {s for s, own in zip(facts.sliding_layers, facts.own_cache, strict=True) if own}
        full, _ = cells_and_streams(self._plan)
        spare = self._share.spare_sequences
        return (
            0 if sliding == {True} else full,
            sliding_cells(facts, self._plan, spare_sequences=spare) if True in sliding else 0,
        )

    def logits(self) -> int:
        outputs = self._share.outputs
        if not outputs:
            return 0
        return outputs * (self._facts.n_vocab + self._facts.n_embd) * _F32 + self.stream

    def attention(self) -> int:
        """Queries, keys and values; without flash attention every query's weight for every cell as well."""
        facts = self._facts
        cells = max(self._cells())
        _, streams = cells_and_streams(self._plan)
        keys, values = max(cache_widths(facts, layer) for layer in range(facts.n_layer))
        around = 3 * self.stream + 2 * self._queries + (keys + values) * self._row
        if self._is_hybrid and facts.state_elements[1]:
            around += self.stream + self._mixed  # the gate of a delta net's attention layers
        flash = self._share.flash_attention
        if self._slides and (self.quantised_cache or not flash):
            around += self._queries
        if flash:
            return around + self._converted_cache(cells * streams)
        if facts.latent_attention:
            around += cells * facts.head_dim_k * _F16 + self._mixed
        return around + max(facts.n_head) * cells * self._row

    def recurrence(self) -> int:
        """A recurrent layer's convolution and scan, and the states of all sequences as they are rewritten."""
        facts = self._facts
        if facts.architecture in _TIME_MIXING:
            return 20 * self.stream + facts.state_elements[1] * self._plan.parallel * _F32
        convolution, state = facts.state_elements
        states = 3 * (convolution + state) * self._plan.parallel * _F32
        inner = facts.recurrent_width * self._row
        mixed = convolution // 3 * self._row if state else self.stream
        beside = 4 if any(facts.own_cache) and not self._is_delta_net else 2
        scan = 2 * mixed + 4 * inner + beside * self.stream
        return max(scan, mixed + 4 * inner + self.stream + states)

    def beside_staged(self) -> int:
        """What lives beside a weight that passes through the GPU."""
        facts = self._facts
        if self._share.staged_expert:
            return 2 * facts.n_ff_expert * facts.n_expert_used * self._row + self.stream
        return 3 * facts.n_ff * self._row + 2 * self.stream + self._mixed

    def _converted_cache(self, rows: int) -> int:
        """CUDA's flash attention reads f16: a quantised cache is converted, one layer's keys and values at a time."""
        if not self._share.gpu or not self.quantised_cache:
            return 0
        facts, plan = self._facts, self._plan
        largest = 0
        for layer in range(facts.n_layer):
            if facts.own_cache[layer] and not facts.sliding_layers[layer]:
                keys, values = cache_widths(facts, layer)
                size = keys if tensor_type(plan.kv_type_k).block_elements > 1 else 0
                size += values if tensor_type(plan.kv_type_v).block_elements > 1 else 0
                largest = max(largest, size)
        return largest * rows * _F16


def _has_dense_layer(facts: ModelFacts) -> bool:
    """A mixture of experts often begins with layers that have none."""
    return any(t.name.endswith("ffn_up.weight") for t in facts.tensors[:64])
