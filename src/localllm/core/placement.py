"""Which device holds which layer, and the bytes of weights that puts on each.

llama.cpp's rules (llama-model.cpp, load_tensors): the input layer stays on the CPU, the last ``gpu_layers`` of the
blocks and the output go to the GPUs, in order, in proportion to the split; experts of the first ``cpu_moe_layers``
stay on the CPU. Everything else in the planner asks here where a layer is.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from localllm.core.facts import ModelFacts
from localllm.core.ggml import BY_NAME
from localllm.core.gguf import TensorInfo
from localllm.core.kv_cache import CUDA_ROW_PADDING
from localllm.core.launch import LaunchPlan

CPU: Final = -1
"""Index of the CPU among the devices of a placement; GPUs count from 0."""

_ALIGNMENT_BYTES = 128
_BLOCK = re.compile(r"blk\.(\d+)\.")
_EXPERTS = re.compile(r"\.ffn_(?:up|down|gate|gate_up)_(?:ch)?exps\.")
_INPUT: Final = frozenset(
    {"token_embd", "token_embd_norm", "token_types", "position_embd", "per_layer_token_embd"}
)


def layer_of(tensor_name: str) -> int | None:
    """The block a tensor belongs to; None for the input and the output."""
    block = _BLOCK.match(tensor_name)
    return int(block[1]) if block is not None else None


def is_expert(tensor_name: str) -> bool:
    """Whether the tensor holds routed experts, of which a token uses a few."""
    return _EXPERTS.search(tensor_name) is not None


class LayerWeights(Struct, frozen=True):
    """One block's weights in bytes: sums of the dense ones and of the experts', and the largest single tensors."""

    dense: int = 0
    experts: int = 0
    largest_dense: int = 0
    largest_expert_up: int = 0
    largest_expert_down: int = 0


class WeightGroups(Struct, frozen=True):
    """A model's weights by where they can go, in bytes.

    ``tied`` = the token embedding also serves as the output: it is held a second time when the output is on a GPU.
    """

    input: int
    output: int
    tied: int
    layers: tuple[LayerWeights, ...]


class Placement(Struct, frozen=True):
    """``layers[i]`` is the device of block i, ``output`` that of the output; CPU or an index into the GPUs."""

    layers: tuple[int, ...]
    output: int
    cpu_moe_layers: int

    @property
    def used(self) -> frozenset[int]:
        """The devices that compute something."""
        return frozenset((*self.layers, self.output))


def place(facts: ModelFacts, plan: LaunchPlan, split: Sequence[float]) -> Placement:
    """Where ``plan`` puts each layer when the GPUs share it in proportion to ``split`` (one weight per GPU)."""
    total = facts.n_layer + 1
    first = max(total - plan.gpu_layers, 0)
    if not split or plan.gpu_layers <= 0:
        return Placement((CPU,) * facts.n_layer, CPU, 0)
    offloaded = min(plan.gpu_layers, total)
    shares = [max(share, 0.0) for share in split]
    whole = sum(shares) or 1.0
    bounds = [sum(shares[: i + 1]) / whole for i in range(len(shares))]
    devices = tuple(
        CPU if layer < first else min(bisect_right(bounds, (layer - first) / offloaded), len(shares) - 1)
        for layer in range(total)
    )
    return Placement(devices[:-1], devices[-1], plan.cpu_moe_layers)


def group_weights(
    tensors: Sequence[TensorInfo], n_layer: int, *, tied: bool, cuda: bool = False
) -> WeightGroups:
    """Sum the tensors by destination; ``cuda`` adds the row padding its buffers need."""
    layers: list[list[TensorInfo]] = [[] for _ in range(n_layer)]
    at_input = at_output = embedding = 0
    for tensor in tensors:
        layer = layer_of(tensor.name)
        if layer is not None and layer < n_layer:
            layers[layer].append(tensor)
        elif tensor.name.rsplit(".", 1)[0] in _INPUT:
            at_input += tensor.size_bytes
            if tensor.name == "token_embd.weight":
                embedding = _padded_bytes(tensor, cuda=cuda)
        else:
            at_output += _padded_bytes(tensor, cuda=cuda)
    return WeightGroups(
        at_input, at_output, embedding if tied else 0, tuple(_layer(found, cuda=cuda) for found in layers)
    )


def _layer(tensors: Sequence[TensorInfo], *, cuda: bool) -> LayerWeights:
    experts = [t for t in tensors if is_expert(t.name)]
    dense = [t for t in tensors if not is_expert(t.name)]
    return LayerWeights(
        dense=sum(_padded_bytes(t, cuda=cuda) for t in dense),
        experts=sum(_padded_bytes(t, cuda=cuda) for t in experts),
        largest_dense=max((t.size_bytes for t in dense), default=0),
        largest_expert_up=max((t.size_bytes for t in experts if "down" not in t.name), default=0),
        largest_expert_down=max((t.size_bytes for t in experts if "down" in t.name), default=0),
    )


def weights_per_device(groups: WeightGroups, placement: Placement, gpu_count: int) -> tuple[int, ...]:
    """Bytes of weights on (CPU, GPU 0, GPU 1, …)."""
    found = [0] * (gpu_count + 1)
    found[0] += groups.input
    found[placement.output + 1] += groups.output
    if placement.output != CPU:
        found[placement.output + 1] += groups.tied
    for layer, weights in enumerate(groups.layers):
        device = placement.layers[layer]
        found[device + 1] += weights.dense
        found[0 if layer < placement.cpu_moe_layers else device + 1] += weights.experts
    return tuple(found)


class Staged(Struct, frozen=True):
    """What passes through a GPU on behalf of layers on the CPU, in bytes; ``expert``: it is experts' weights."""

    bytes: int
    expert: bool


def staged_weights(groups: WeightGroups, placement: Placement) -> Staged:
    """The room a GPU needs for weights of the CPU's layers when it computes a large batch for them.

    One weight is copied at a time and its place reused, if the next one fits: experts' way down that is larger
    than their way up lands behind it (read off two load logs; a tenth is added, since ggml leaves gaps).
    """
    dense = experts = 0
    for layer, weights in enumerate(groups.layers):
        on_cpu = placement.layers[layer] == CPU
        if on_cpu:
            dense = max(dense, weights.largest_dense)
        if on_cpu or layer < placement.cpu_moe_layers:
            up, down = weights.largest_expert_up, weights.largest_expert_down
            experts = max(experts, up if down <= up else (up + down) * 11 // 10)
    return Staged(experts, True) if experts > dense else Staged(dense, False)


def _padded_bytes(tensor: TensorInfo, *, cuda: bool) -> int:
    size = tensor.size_bytes
    if not cuda:
        return size
    kind, width = BY_NAME[tensor.type], tensor.shape[0]
    if kind.block_elements > 1 and width % CUDA_ROW_PADDING:
        size += kind.row_bytes(CUDA_ROW_PADDING - width % CUDA_ROW_PADDING)
    return -(-size // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
