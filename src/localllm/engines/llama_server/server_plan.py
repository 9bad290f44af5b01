"""What a launch plan means for llama.cpp's server, the same for the bundled one and for a ``llama-server`` binary."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from localllm.core.launch import LaunchPlan

LOG_VERBOSITY = 4
"""The level at which llama.cpp names the buffers it allocates; it logs no prompts at it."""

PROMPT_CACHE_MIB = 256
"""Host memory for the prompts of idle slots. llama.cpp's default, 8 GiB, is memory nobody planned."""

CONTEXT_CHECKPOINTS = 4
"""Saved states a sliding-window model can go back to, per slot; each holds the window's whole KV (default 32)."""

_CPU_BATCH = 256
_SPARE_HTTP_THREADS = 64


class HostPlan(Struct, frozen=True):
    """``key`` is what requests must carry; it is drawn anew for each child."""

    plan: LaunchPlan
    key: str


class HostReady(Struct, frozen=True):
    address: str
    version: str


def total_context(plan: LaunchPlan) -> int:
    """Tokens of KV cache in all; llama.cpp shares them among the sequences."""
    return plan.context_length * plan.parallel


def batch_of(plan: LaunchPlan) -> tuple[int, int]:
    """(batch, micro-batch) in tokens.

    An embedding is computed in one micro-batch: that of its plan is the longest input. A batch of a chat cannot be
    interrupted: on the CPU a large one would keep a slot busy for many seconds after its client has left, and every
    other stream with it, for a few per cent of prefill speed.
    """
    if plan.embedding:
        return plan.ubatch, plan.ubatch
    if plan.gpu_layers == 0:
        batch = min(plan.batch, _CPU_BATCH)
        return batch, min(plan.ubatch, batch)
    return plan.batch, min(plan.ubatch, plan.batch)


def pooling_of(plan: LaunchPlan) -> Literal["none", "mean", "cls", "last", "rank"]:
    """How token vectors become one: what the plan says, or ``mean``, as a chat model names none itself."""
    return plan.pooling or "mean"


def http_threads(plan: LaunchPlan) -> int:
    """Every open stream holds a thread of the server; those left answer pings."""
    return plan.parallel + _SPARE_HTTP_THREADS


def cpu_expert_override(layers: int) -> str:
    """llama.cpp's ``--n-cpu-moe``, spelled as tensor overrides: the experts of the first layers stay in host memory."""
    return ",".join(rf"blk\.{layer}\.ffn_(up|down|gate|gate_up)_(ch|)exps=CPU" for layer in range(layers))
