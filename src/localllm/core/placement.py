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


class WeightGroups(Struct, frozen=True):
    """A model's weights by where they can go, in bytes.

    ``layers[i]`` = (dense, experts) of block i. ``tied`` = the token embedding also serves as the output: it is
    held a second time when the output is on a GPU.
    """

    input: int
    output: int
    tied: int
    layers: tuple[tuple[int, int], ...]

    @property
    def total(self) -> int:
        return self.input + self.output + sum(dense + experts for dense, experts in self.layers)


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
    layers = [[0, 0] for _ in range(n_layer)]
    at_input = at_output = embedding = 0
    for tensor in tensors:
        size = _padded_bytes(tensor, cuda=cuda)
        block = _BLOCK.match(tensor.name)
        if block is not None and int(block[1]) < n_layer:
            layers[int(block[1])][1 if _EXPERTS.search(tensor.name) else 0] += size
        elif tensor.name.rsplit(".", 1)[0] in _INPUT:
            at_input += tensor.size_bytes
            if tensor.name == "token_embd.weight":
                embedding = size
        else:
            at_output += size
    return WeightGroups(at_input, at_output, embedding if tied else 0, tuple((a, b) for a, b in layers))


def weights_per_device(groups: WeightGroups, placement: Placement, gpu_count: int) -> tuple[int, ...]:
    """Bytes of weights on (CPU, GPU 0, GPU 1, …)."""
    found = [0] * (gpu_count + 1)
    found[0] += groups.input
    found[placement.output + 1] += groups.output
    if placement.output != CPU:
        found[placement.output + 1] += groups.tied
    for layer, (dense, experts) in enumerate(groups.layers):
        device = placement.layers[layer]
        found[device + 1] += dense
        found[0 if layer < placement.cpu_moe_layers else device + 1] += experts
    return tuple(found)


class Staged(Struct, frozen=True):
    """What passes through a GPU on behalf of layers on the CPU, in bytes; ``expert``: it is experts' weights."""

    bytes: int
    expert: bool


def staged_weights(facts: ModelFacts, placement: Placement) -> Staged:
    """The room a GPU needs for weights of the CPU's layers when it computes a large batch for them.

    One weight is copied at a time and its place reused, if the next one fits: experts' way down that is larger
    than their way up lands behind it (read off two load logs; a tenth is added, since ggml leaves gaps).
    """
    dense = experts = 0
    first: dict[int, int] = {}
    second: dict[int, int] = {}
    for tensor in facts.tensors:
        block = _BLOCK.match(tensor.name)
        if block is None or int(block[1]) >= len(placement.layers):
            continue
        layer = int(block[1])
        is_expert = _EXPERTS.search(tensor.name) is not None
        if placement.layers[layer] != CPU and not (is_expert and layer < placement.cpu_moe_layers):
            continue
        if is_expert:
            group = second if "down" in tensor.name else first
            group[layer] = max(group.get(layer, 0), tensor.size_bytes)
        else:
            dense = max(dense, tensor.size_bytes)
    for layer in first.keys() | second.keys():
        up, down = first.get(layer, 0), second.get(layer, 0)
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
