"""How fast a model will run: tokens per second with a range and its reason.

Decoding reads every active weight once per token, so its time is bytes over bandwidth, plus a cost per layer, plus
the cache that the context has filled; devices that share the layers work one after the other. Prefill is arithmetic.
Own measurements correct these figures as soon as there are any (``engines.measurements`` keeps them).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Final

from msgspec import Struct, structs

from localllm.core.device_table import DeviceRow
from localllm.core.facts import ModelFacts
from localllm.core.kv_cache import layer_caches
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device
from localllm.core.pace import Pace, pace_of
from localllm.core.placement import CPU, Placement, is_expert, layer_of, place


class SpeedEstimate(Struct, frozen=True, kw_only=True):
    """Tokens per second of one sequence; ``low``…``high`` is where nine of ten measurements fall."""

    decode: float
    decode_low: float
    decode_high: float
    prefill: float | None = None
    prefill_low: float | None = None
    prefill_high: float | None = None
    reason: str


_TYPE_TIME: Final[dict[str, float]] = {
    "F32": 1.0,
    "F16": 0.97,
    "BF16": 1.0,
    "Q8_0": 0.97,
    "Q4_0": 1.0,
    "Q4_1": 1.0,
    "Q5_0": 1.04,
    "Q5_1": 1.04,
    "MXFP4": 1.0,
    "NVFP4": 1.1,
    "IQ4_NL": 1.08,
}
"""Time per byte against Q4_0; K-quants by the device's generation (``Pace.q4_k``), on top of that:"""

_K_QUANT_TIME: Final[dict[str, float]] = {
    "Q4_K": 1.0,
    "Q5_K": 1.0,
    "Q6_K": 1.02,
    "IQ4_XS": 1.02,
    "Q3_K": 1.3,
    "Q2_K": 1.4,
}
_OTHER_TIME: Final = 1.45

_LAYER_TIME: Final[dict[str, float]] = {
    "gemma2": 1.6,
    "gemma3": 1.5,
    "gemma3n": 2.5,
    "gemma4": 1.6,
    "qwen3next": 2.5,
    "qwen35": 1.9,
    "qwen35moe": 2.5,
    "deepseek2": 1.5,
}
"""Families whose layers do more beside their matrices than Llama's: the cost of a layer against one of Llama's."""

_EXPERT_LAYER_TIME: Final = 1.3
"""The same for other mixtures of experts: routing, gathering, weighting."""

OWN_SPREAD: Final = 0.12
"""What one machine's rates differ by from run to run (heat, other programs)."""

_KV_EFFICIENCY: Final = 0.75
"""Attention reads the cache less evenly than weights are read."""


def estimate_speed(
    facts: ModelFacts,
    plan: LaunchPlan,
    gpus: Sequence[Device],
    cpu: Device,
    device_table: Sequence[DeviceRow] = (),
    *,
    depth: int = 0,
) -> SpeedEstimate | None:
    """Decode and prefill of one sequence whose context already holds ``depth`` tokens.

    None when the bandwidth of a device that is used is unknown.
    """
    split = plan.tensor_split or tuple(float(gpu.usable_bytes) for gpu in gpus)
    placement = place(facts, plan, split)
    paces: dict[int, Pace] = {}
    for device in sorted(_used(facts, placement)):
        pace = pace_of(cpu if device == CPU else gpus[device], device_table)
        if pace is None:
            return None
        paces[device] = pace
    return estimate_from_paces(facts, plan, placement, paces, depth=depth)


def estimate_from_paces(
    facts: ModelFacts, plan: LaunchPlan, placement: Placement, paces: dict[int, Pace], *, depth: int = 0
) -> SpeedEstimate:
    """The estimate, given each used device's pace (index as in ``placement``)."""
    layer_time = _LAYER_TIME.get(facts.architecture, _EXPERT_LAYER_TIME if facts.is_moe else 1.0)
    seconds = _weight_seconds(facts, placement, paces)
    seconds += sum(paces[device].layer_us * 1e-6 * layer_time for device in placement.layers)
    seconds += _cache_seconds(facts, plan, placement, paces, depth)
    decode = 1 / seconds
    low, high = _range(placement, paces)
    prefill = _prefill(facts, placement, paces)
    return SpeedEstimate(
        decode=decode,
        decode_low=decode * low,
        decode_high=decode * high,
        prefill=prefill,
        prefill_low=prefill * 0.5,
        prefill_high=prefill * 1.5,
        reason=_reason(placement, paces),
    )


def corrected(estimate: SpeedEstimate, ratios: Sequence[float]) -> SpeedEstimate:
    """The estimate in the light of own measurements: ``ratios`` are measured over estimated decode rates here.

    Their median moves the figure, and their spread makes the range, never narrower than a machine at work varies.
    """
    if not ratios:
        return estimate
    count, middle = len(ratios), statistics.median(ratios)
    low = min(*ratios, middle * (1 - OWN_SPREAD))
    high = max(*ratios, middle * (1 + OWN_SPREAD))
    return structs.replace(
        estimate,
        decode=estimate.decode * middle,
        decode_low=estimate.decode * low,
        decode_high=estimate.decode * high,
        reason=f"{estimate.reason} Corrected ×{middle:.2f} by {count} own measurement{'' if count == 1 else 's'}.",
    )


def _used(facts: ModelFacts, placement: Placement) -> set[int]:
    used = set(placement.used)
    if placement.cpu_moe_layers and facts.is_moe:
        used.add(CPU)
    return used


def _weight_seconds(facts: ModelFacts, placement: Placement, paces: dict[int, Pace]) -> float:
    """Time to read what one token needs of every tensor, on the device that holds it."""
    work = dict.fromkeys(paces, 0.0)
    for tensor in facts.tensors:
        layer = layer_of(tensor.name)
        if layer is None:
            # the input embedding is one row; as a tied output it is read whole
            if tensor.name.startswith(("token_embd", "per_layer_token_embd")) and not (
                facts.tied_embeddings and tensor.name == "token_embd.weight"
            ):
                continue
            device, share = placement.output, 1.0
        elif layer >= len(placement.layers):
            continue
        else:
            device, share = placement.layers[layer], 1.0
            if is_expert(tensor.name):
                share = facts.expert_share
                device = CPU if layer < placement.cpu_moe_layers else device
        work[device] += tensor.size_bytes * share * _type_time(tensor.type, paces[device])
    return sum(amount / paces[device].bytes_per_s for device, amount in work.items())


def _type_time(kind: str, pace: Pace) -> float:
    if kind in _TYPE_TIME:
        return _TYPE_TIME[kind]
    return pace.q4_k * _K_QUANT_TIME.get(kind, _OTHER_TIME)


def _cache_seconds(
    facts: ModelFacts, plan: LaunchPlan, placement: Placement, paces: dict[int, Pace], depth: int
) -> float:
    if depth <= 0:
        return 0.0
    per_layer = [cache.keys_values for cache in layer_caches(facts, plan)]
    total = sum(per_layer)
    if not total:
        return 0.0
    cells = plan.context_length * plan.parallel
    seconds = 0.0
    for layer, device in enumerate(placement.layers):
        filled = min(1.0, depth / cells) if not facts.sliding_layers[layer] else 1.0
        seconds += per_layer[layer] * filled / (paces[device].bytes_per_s * _KV_EFFICIENCY)
    return seconds


def _range(placement: Placement, paces: dict[int, Pace]) -> tuple[float, float]:
    if CPU in paces and len(paces) > 1:
        return 0.35, 1.7
    if CPU in paces:
        return 0.55, 1.45
    return (0.67, 1.28) if all(pace.measured for pace in paces.values()) else (0.52, 1.42)


def _prefill(facts: ModelFacts, placement: Placement, paces: dict[int, Pace]) -> float:
    """Active parameters twice, over the arithmetic of the device that holds most layers."""
    active = active_parameters(facts)
    gpus = [device for device in paces if device != CPU]
    shares = {device: placement.layers.count(device) for device in paces}
    if gpus:
        # layers on the CPU are computed on the GPU in prefill, at the price of carrying them there
        main = max(gpus, key=lambda device: shares[device])
        penalty = 1 + 3 * shares.get(CPU, 0) / max(len(placement.layers), 1)
        return paces[main].prefill_tflops * 1e12 / (2 * active) / penalty
    return paces[CPU].prefill_tflops * 1e12 / (2 * active)


def active_parameters(facts: ModelFacts) -> float:
    """Weights that one token passes through."""
    total = 0.0
    for tensor in facts.tensors:
        if tensor.name.startswith(("token_embd", "per_layer_token_embd")):
            continue
        size = 1.0
        for dimension in tensor.shape:
            size *= dimension
        total += size * (facts.expert_share if is_expert(tensor.name) else 1.0)
    return max(total, 1.0)


def _reason(placement: Placement, paces: dict[int, Pace]) -> str:
    parts = [
        f"{pace.name}: {pace.bandwidth_gb_per_s:.0f} GB/s × {pace.efficiency:.2f}, {pace.source}"
        for _, pace in sorted(paces.items(), reverse=True)
    ]
    return "; ".join(parts) + "."
