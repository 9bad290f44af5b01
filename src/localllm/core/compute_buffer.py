"""The scratch memory of one computation step, per device: llama.cpp's "compute buffer".

ggml reserves the largest set of intermediate results that live at once in the worst step (a full ubatch at full
context). The closed form here takes the stage that is largest: the logits, the feed-forward, or the attention.
"""

from __future__ import annotations

from localllm.core.facts import ModelFacts
from localllm.core.kv_cache import cells_and_streams
from localllm.core.launch import LaunchPlan

_F32 = 4
_F16 = 2


def compute_bytes(
    facts: ModelFacts, plan: LaunchPlan, *, gpu: bool, flash_attention: bool, outputs: int, has_output: bool
) -> int:
    """Scratch bytes on a device that computes blocks, and the logits too with ``has_output``.

    ``outputs`` is how many tokens of a batch get logits (llama-server: one per sequence).
    """
    batch = min(plan.ubatch, plan.context_length * plan.parallel)
    stream = facts.n_embd * batch * _F32
    cells, _ = cells_and_streams(plan)
    mask = cells * batch * (_F16 if flash_attention else _F32)
    stages = [_feed_forward(facts, batch) + 3 * stream + mask]
    if has_output:
        stages.append(outputs * (facts.n_vocab + 2 * facts.n_embd) * _F32 + stream)
    if not flash_attention:
        stages.append(mask + 3 * stream + cells * batch * max(facts.n_head, default=0) * _F32)
    return max(stages) + (0 if gpu else stream)


def _feed_forward(facts: ModelFacts, batch: int) -> int:
    dense = 3 * facts.n_ff * batch * _F32
    experts = (3 * facts.n_ff_expert + facts.n_embd) * facts.n_expert_used * batch * _F32
    return max(dense, experts)


def output_bytes(facts: ModelFacts, plan: LaunchPlan, outputs: int) -> int:
    """The host buffer that results are copied to: one row of logits per output (llama-context.cpp)."""
    if plan.embedding:
        return outputs * facts.n_embd * _F32
    return outputs * facts.n_vocab * _F32
