"""How much memory a launch plan takes, device by device: weights, caches, scratch, output and what lies outside.

One estimator for everything: the load path, the fit table, the ledger and the pull gate ask here. The parts are in
``placement`` (weights), ``kv_cache`` and ``compute_buffer``; this module adds them up per device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from msgspec import Struct

from localllm.core.compute_buffer import Share, compute_bytes, host_bytes, output_bytes, output_rows
from localllm.core.facts import ModelFacts
from localllm.core.kv_cache import layer_caches
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device
from localllm.core.placement import (
    CPU,
    Placement,
    Staged,
    WeightGroups,
    group_weights,
    place,
    staged_weights,
    weights_per_device,
)
from localllm.core.units import MIB

CPU_ID: Final = "cpu"

BACKEND_OVERHEAD_BYTES: Final[dict[str, int]] = {
    "cuda": 150 * MIB,
    "rocm": 250 * MIB,
    "vulkan": 110 * MIB,
    "sycl": 200 * MIB,
    "metal": 30 * MIB,
    "cpu": 80 * MIB,
}
"""What a process holds on a device beside llama.cpp's buffers (CUDA context 116 to 148 MiB, measured)."""


class DeviceEstimate(Struct, frozen=True, kw_only=True):
    """All sizes in bytes. ``kv`` includes recurrent state; ``overhead`` is outside any buffer of llama.cpp."""

    device_id: str
    weights: int = 0
    kv: int = 0
    compute: int = 0
    output: int = 0
    overhead: int = 0

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.compute + self.output + self.overhead


class MemoryEstimate(Struct, frozen=True):
    """The CPU first, then the GPUs in the order they were given."""

    devices: tuple[DeviceEstimate, ...]

    def on(self, device_id: str) -> DeviceEstimate:
        """Raises ``KeyError`` for a device that was not part of the estimate."""
        for device in self.devices:
            if device.device_id == device_id:
                return device
        raise KeyError(device_id)

    def by_device(self) -> dict[str, int]:
        """The whole claim on each device, for the ledger."""
        return {device.device_id: device.total for device in self.devices}

    @property
    def weights_bytes(self) -> int:
        return sum(d.weights for d in self.devices)

    @property
    def kv_bytes(self) -> int:
        return sum(d.kv for d in self.devices)

    @property
    def compute_bytes(self) -> int:
        return sum(d.compute for d in self.devices)

    @property
    def output_bytes(self) -> int:
        return sum(d.output for d in self.devices)

    @property
    def overhead_bytes(self) -> int:
        return sum(d.overhead for d in self.devices)

    @property
    def total_bytes(self) -> int:
        return sum(d.total for d in self.devices)


class Extras(Struct, frozen=True):
    """Bytes that come with the model: a vision projector (with its graph), a draft model, LoRA adapters."""

    projector: int = 0
    draft: int = 0
    adapters: int = 0

    @property
    def total(self) -> int:
        return self.projector + self.draft + self.adapters


class Habits(Struct, frozen=True, kw_only=True):
    """What an engine asks llama.cpp for beyond the plan.

    Spare sequences remember prefixes: ``spare_windows`` of them where layers slide, ``spare_states`` where layers
    recur (elsewhere they are free). ``spare_outputs`` are rows of logits for drafts. ``residual_rows`` as in
    ``compute_buffer.Share``.
    """

    spare_windows: int = 0
    spare_states: int = 0
    spare_outputs: int = 0
    residual_rows: int | None = None

    def spare_sequences(self, facts: ModelFacts) -> int:
        if any(facts.recurrent_layers):
            return self.spare_states
        return self.spare_windows if any(facts.sliding_layers) else 0


HABITS: Final[dict[str, Habits]] = {
    # read off the bundled server (xllamacpp 2026.10) on models of seven widths
    "llama_server": Habits(residual_rows=5),
    "llama_cpp": Habits(spare_windows=2, spare_states=1, spare_outputs=32),
}


DEFAULT_ENGINE: Final = "llama_server"


class Estimator:
    """Estimates many plans of one model on one set of GPUs; what does not change with the plan is summed once."""

    def __init__(
        self,
        facts: ModelFacts,
        gpus: Sequence[Device],
        *,
        extras: Extras | None = None,
        habits: Habits | None = None,
        correct: Callable[[MemoryEstimate], MemoryEstimate] | None = None,
    ) -> None:
        """``correct`` is applied to every estimate (what was learned from earlier loads, ``core.learn``)."""
        self.facts = facts
        self._habits = habits or Habits()
        self._correct = correct
        self._gpus = tuple(gpus)
        self._extras = extras or Extras()
        self._cuda = any(gpu.backend in ("cuda", "rocm") for gpu in gpus)
        self._groups: WeightGroups = group_weights(
            facts.tensors, facts.n_layer, tied=facts.tied_embeddings, cuda=self._cuda
        )

    def estimate(self, plan: LaunchPlan, *, outputs: int | None = None) -> MemoryEstimate:
        """``outputs``: how many tokens of a batch get logits; None = one per sequence, as our engines ask for.

        llama.cpp before September 2026 (and a bare context) makes room for the whole batch.
        """
        facts, count = self.facts, len(self._gpus)
        spare = self._spare(plan)
        split = plan.tensor_split or tuple(float(gpu.usable_bytes) for gpu in self._gpus)
        placement = place(facts, plan, split)
        weights = list(weights_per_device(self._groups, placement, count))
        weights[placement.output + 1] += self._extras.total
        kv = [0] * (count + 1)
        for layer, cache in enumerate(layer_caches(facts, plan, cuda=self._cuda, spare_sequences=spare)):
            kv[placement.layers[layer] + 1] += cache.total
        if outputs is None:
            outputs = output_rows(facts, plan, self._habits.spare_outputs)
        devices = tuple(
            DeviceEstimate(
                device_id=CPU_ID if device == CPU else self._gpus[device].id,
                weights=weights[device + 1],
                kv=kv[device + 1],
                compute=self._scratch(plan, placement, device, outputs),
                output=output_bytes(facts, plan, plan.parallel + spare) if device == CPU else 0,
                overhead=self._overhead(placement, device),
            )
            for device in range(CPU, count)
        )
        estimate = MemoryEstimate(devices)
        return estimate if self._correct is None else self._correct(estimate)

    def _spare(self, plan: LaunchPlan) -> int:
        return self._habits.spare_sequences(self.facts) if plan.unified_kv else 0

    def _scratch(self, plan: LaunchPlan, placement: Placement, device: int, outputs: int) -> int:
        if device not in placement.used:
            return host_bytes(self.facts, plan) if device == CPU else 0
        staged = staged_weights(self._groups, placement) if device != CPU else Staged(0, False)
        share = Share(
            gpu=device != CPU,
            outputs=outputs if device == placement.output else 0,
            flash_attention=uses_flash_attention(self.facts, plan),
            staged_bytes=staged.bytes,
            staged_expert=staged.expert,
            spare_sequences=self._spare(plan),
            residual_rows=self._habits.residual_rows,
        )
        return compute_bytes(self.facts, plan, share)

    def _overhead(self, placement: Placement, device: int) -> int:
        if device == CPU:
            return BACKEND_OVERHEAD_BYTES["cpu"]
        backend = self._gpus[device].backend or "cuda"
        return BACKEND_OVERHEAD_BYTES[backend] if device in placement.used else 0


def uses_flash_attention(facts: ModelFacts, plan: LaunchPlan) -> bool:
    """Whether "auto" ends up on: every backend that counts has it, for whatever attends at all."""
    if plan.flash_attention != "auto":
        return plan.flash_attention == "on"
    return any(facts.own_cache) or not facts.causal
