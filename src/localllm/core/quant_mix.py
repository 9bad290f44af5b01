"""What a named quantisation does to each tensor: the recipe behind ``Q4_K_M`` and its kin.

A named mix is not one type for all weights: the output, the values of attention and the way down of the feed-forward
get more bits, in some layers, in some models. The recipes of llama-quantize are tables here, so that the size of a
file nobody has made yet can be known. Uploaders with recipes of their own (``UD-`` quants) differ by a few percent.

Source: llama.cpp's src/llama-quant.cpp, as of 2026; checked against 46 sizes that its dry run printed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import Final

from msgspec import Struct

from localllm.core.ggml import BY_NAME


class Role(StrEnum):
    """What a tensor is for, as far as recipes care."""

    EMBEDDING = "embedding"
    OUTPUT = "output"
    VALUES = "values"
    KEYS = "keys"
    QUERIES = "queries"
    ATTENTION_OUTPUT = "attention_output"
    FFN_DOWN = "ffn_down"
    FFN_UP = "ffn_up"
    OTHER = "other"


class Layers(StrEnum):
    """Which layers a rule is for; of n layers (or of n value tensors), counted from 0."""

    ALL = "all"
    FIRST_TWO = "first two"
    FIRST_FOUR = "first four"
    FIRST_SIXTEENTH = "first sixteenth"
    FIRST_EIGHTH = "first eighth"
    MORE_BITS = "first and last eighth, and every third between"
    MIDDLE = "all but the first and last eighth"


class When(StrEnum):
    """A condition on the model or on how it is quantised."""

    ALWAYS = "always"
    WIDE_GROUPS = "four or more query heads share a key head"
    IMPORTANCE_MATRIX = "an importance matrix is used"
    NO_IMPORTANCE_MATRIX = "no importance matrix is used"


class Rule(Struct, frozen=True):
    type: str
    layers: Layers = Layers.ALL
    when: When = When.ALWAYS


class Recipe(Struct, frozen=True):
    """``base`` for every tensor without a rule; of a role's rules the first that applies wins."""

    base: str
    output: str = "Q6_K"
    rules: dict[Role, tuple[Rule, ...]] = {}


class MixTarget(Struct, frozen=True, kw_only=True):
    """What recipes look at in a model."""

    architecture: str
    n_layer: int
    query_heads_per_key: int
    n_expert: int = 0
    tied_embeddings: bool = False
    importance_matrix: bool = False


class Shape(Struct, frozen=True):
    """A tensor before it is quantised; ``shape`` innermost first; ``type`` is what it has when no recipe touches it."""

    name: str
    shape: tuple[int, ...]
    type: str = "F32"


_MORE, _EIGHTH = Layers.MORE_BITS, Layers.FIRST_EIGHTH


def _low_bits(base: str, low: str, attention_output: str, embedding: str) -> Recipe:
    """The family of one- and two-bit types: everything that is not a plain matrix gets a better type."""
    return Recipe(
        base,
        "Q5_K",
        {
            Role.EMBEDDING: (Rule(embedding),),
            Role.VALUES: (Rule("Q4_K", when=When.WIDE_GROUPS), Rule(low)),
            Role.FFN_DOWN: (Rule(low, _EIGHTH),),
            Role.ATTENTION_OUTPUT: (Rule(attention_output),),
        },
    )


def _plain(base: str, output: str = "Q6_K") -> Recipe:
    return Recipe(base, output)


RECIPES: Final[dict[str, Recipe]] = {
    "F32": _plain("F32", "F32"),
    "F16": _plain("F16", "F16"),
    "BF16": _plain("BF16", "BF16"),
    "Q8_0": _plain("Q8_0", "Q8_0"),
    "Q6_K": _plain("Q6_K"),
    "Q5_K_M": Recipe(
        "Q5_K", rules={Role.VALUES: (Rule("Q6_K", _MORE),), Role.FFN_DOWN: (Rule("Q6_K", _MORE),)}
    ),
    "Q5_K_S": _plain("Q5_K"),
    "Q5_1": _plain("Q5_1"),
    "Q5_0": Recipe("Q5_0", rules={Role.FFN_DOWN: (Rule("Q5_1", _EIGHTH, When.IMPORTANCE_MATRIX),)}),
    "Q4_K_M": Recipe(
        "Q4_K", rules={Role.VALUES: (Rule("Q6_K", _MORE),), Role.FFN_DOWN: (Rule("Q6_K", _MORE),)}
    ),
    "Q4_K_S": Recipe(
        "Q4_K",
        rules={
            Role.VALUES: (Rule("Q5_K", Layers.FIRST_FOUR),),
            Role.FFN_DOWN: (Rule("Q5_K", _EIGHTH),),
        },
    ),
    "Q4_1": _plain("Q4_1"),
    "Q4_0": Recipe("Q4_0", rules={Role.FFN_DOWN: (Rule("Q4_1", _EIGHTH, When.IMPORTANCE_MATRIX),)}),
    "IQ4_NL": Recipe(
        "IQ4_NL",
        rules={
            Role.VALUES: (Rule("Q5_K", when=When.WIDE_GROUPS),),
            Role.FFN_DOWN: (Rule("Q5_K", _EIGHTH, When.NO_IMPORTANCE_MATRIX),),
        },
    ),
    "IQ4_XS": Recipe(
        "IQ4_XS",
        rules={
            Role.VALUES: (Rule("Q5_K", when=When.WIDE_GROUPS),),
            Role.FFN_DOWN: (Rule("Q5_K", _EIGHTH, When.NO_IMPORTANCE_MATRIX),),
        },
    ),
    "Q3_K_L": Recipe(
        "Q3_K",
        rules={
            Role.VALUES: (Rule("Q5_K"),),
            Role.FFN_DOWN: (Rule("Q5_K"),),
            Role.ATTENTION_OUTPUT: (Rule("Q5_K"),),
        },
    ),
    "Q3_K_M": Recipe(
        "Q3_K",
        rules={
            Role.VALUES: (Rule("Q5_K", Layers.FIRST_TWO), Rule("Q4_K")),
            Role.FFN_DOWN: (Rule("Q5_K", Layers.FIRST_SIXTEENTH), Rule("Q4_K")),
            Role.ATTENTION_OUTPUT: (Rule("Q4_K"),),
        },
    ),
    "Q3_K_S": _plain("Q3_K"),
    "IQ3_M": Recipe(
        "IQ3_S",
        rules={
            Role.VALUES: (Rule("Q4_K"),),
            Role.FFN_DOWN: (Rule("Q4_K", _EIGHTH),),
            Role.ATTENTION_OUTPUT: (Rule("Q4_K"),),
        },
    ),
    "IQ3_S": Recipe("IQ3_S", rules={Role.VALUES: (Rule("Q4_K", when=When.WIDE_GROUPS),)}),
    "IQ3_XS": Recipe(
        "IQ3_S",
        rules={
            Role.VALUES: (Rule("Q4_K", when=When.WIDE_GROUPS),),
            Role.KEYS: (Rule("IQ3_XXS"),),
            Role.QUERIES: (Rule("IQ3_XXS"),),
            Role.FFN_UP: (Rule("IQ3_XXS", Layers.MIDDLE),),
        },
    ),
    "IQ3_XXS": Recipe(
        "IQ3_XXS",
        "Q5_K",
        {
            Role.EMBEDDING: (Rule("IQ3_S"),),
            Role.VALUES: (
                Rule("Q4_K", when=When.WIDE_GROUPS),
                Rule("IQ3_S", when=When.NO_IMPORTANCE_MATRIX),
            ),
            Role.KEYS: (Rule("IQ2_S"),),
            Role.QUERIES: (Rule("IQ2_S"),),
            Role.FFN_DOWN: (
                Rule("Q4_K", _EIGHTH, When.NO_IMPORTANCE_MATRIX),
                Rule("Q3_K", when=When.NO_IMPORTANCE_MATRIX),
            ),
            Role.ATTENTION_OUTPUT: (Rule("IQ3_S"),),
        },
    ),
    "Q2_K": Recipe(
        "Q2_K",
        rules={
            Role.VALUES: (Rule("Q4_K", when=When.WIDE_GROUPS), Rule("Q3_K")),
            Role.FFN_DOWN: (Rule("Q3_K"),),
            Role.ATTENTION_OUTPUT: (Rule("Q3_K"),),
        },
    ),
    "Q2_K_S": Recipe(
        "Q2_K",
        rules={
            Role.VALUES: (Rule("Q4_K", when=When.WIDE_GROUPS),),
            Role.FFN_DOWN: (Rule("Q4_K", _EIGHTH),),
        },
    ),
    "IQ2_M": _low_bits("IQ2_S", "IQ3_S", "IQ3_S", "IQ3_S"),
    "IQ2_S": _low_bits("IQ2_XS", "IQ3_S", "IQ3_S", "IQ3_S"),
    "IQ2_XS": _low_bits("IQ2_XS", "Q2_K", "IQ2_XS", "Q2_K"),
    "IQ2_XXS": _low_bits("IQ2_XXS", "Q2_K", "IQ2_XXS", "Q2_K"),
    "IQ1_M": _low_bits("IQ1_M", "Q2_K", "IQ2_XXS", "Q2_K"),
    "IQ1_S": _low_bits("IQ1_S", "Q2_K", "IQ2_XXS", "Q2_K"),
    "TQ2_0": Recipe("TQ2_0", rules={Role.EMBEDDING: (Rule("Q4_K"),)}),
    "TQ1_0": Recipe("TQ1_0", rules={Role.EMBEDDING: (Rule("Q4_K"),)}),
    "NVFP4": _plain("NVFP4"),
}

#: Type to take instead when a row does not divide into blocks (and F16 when not even that does).
_FALLBACKS: Final = {"Q4_K": "Q5_0", "Q5_K": "Q5_1", "Q6_K": "Q8_0"} | dict.fromkeys(
    ("Q2_K", "Q3_K", "TQ1_0", "TQ2_0", "Q2_0"), "Q4_0"
)
_FALLBACK_OF_IQ = "IQ4_NL"

_ROLES: Final[tuple[tuple[str, Role], ...]] = (
    ("attn_qkv.weight", Role.VALUES),
    ("attn_kv_b.weight", Role.VALUES),
    ("attn_v.weight", Role.VALUES),
    ("attn_k.weight", Role.KEYS),
    ("attn_q.weight", Role.QUERIES),
    ("attn_output.weight", Role.ATTENTION_OUTPUT),
    ("ffn_up", Role.FFN_UP),
    ("ffn_gate", Role.FFN_UP),
    ("ffn_down", Role.FFN_DOWN),
)

_NEVER_QUANTISED: Final = (
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "ssm_conv1d",
    "shortconv.conv.weight",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "attn_rel_b.weight",
    "position_embd",
    "token_types.weight",
    "time_mix_lerp_fused.weight",
)
_RWKV_SMALL = re.compile(r"time_mix_(?:first|[wvag][012]|decay_w[12])\.weight")
_BLOCK = re.compile(r"blk\.(\d+)\.")
_EIGHT_EXPERT_OUTPUT_Q5: Final = frozenset(
    {
        "Q2_K",
        "IQ3_XS",
        "IQ3_XXS",
        "Q3_K_S",
        "Q3_K_M",
        "IQ4_NL",
        "Q4_K_S",
        "Q4_K_M",
        "IQ3_S",
        "IQ3_M",
        "IQ4_XS",
    }
)
_LOW_BIT: Final = frozenset({"IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "IQ1_M", "IQ1_S"})


def known_mix(quant: str) -> bool:
    return quant in RECIPES or quant == "MXFP4_MOE"


def mixed(tensors: Sequence[Shape], quant: str, target: MixTarget) -> tuple[Shape, ...]:
    """The tensors as llama-quantize would type them for ``quant``.

    Raises:
        KeyError: no recipe of that name.
    """
    order = sorted(range(len(tensors)), key=lambda i: _layer_of(tensors[i].name))
    types = [""] * len(tensors)
    chooser = _Chooser(quant, target, sum(_role(t.name) is Role.VALUES for t in tensors))
    for index in order:
        tensor = tensors[index]
        types[index] = chooser.type_of(tensor) if is_quantised(tensor) else tensor.type
    return tuple(Shape(t.name, t.shape, kind) for t, kind in zip(tensors, types, strict=True))


def tensor_bytes(tensor: Shape) -> int:
    kind, size = BY_NAME[tensor.type], 1
    for dimension in tensor.shape[1:]:
        size *= dimension
    return kind.row_bytes(tensor.shape[0]) * size


def is_quantised(tensor: Shape) -> bool:
    """Whether a recipe touches the tensor at all: matrices, except small or delicate ones."""
    name = tensor.name
    return (
        sum(dimension > 1 for dimension in tensor.shape[1:]) > 0
        and name.endswith("weight")
        and not any(part in name for part in _NEVER_QUANTISED)
        and _RWKV_SMALL.search(name) is None
    )


class _Chooser:
    """Goes through the tensors of one model in layer order; value tensors are counted as they pass."""

    def __init__(self, quant: str, target: MixTarget, value_tensors: int) -> None:
        self._quant = quant
        self._recipe = RECIPES["Q8_0"] if quant == "MXFP4_MOE" else RECIPES[quant]
        self._target = target
        self._value_tensors = value_tensors
        self._values = self._downs = self._ups = 0

    def type_of(self, tensor: Shape) -> str:
        role = _role(tensor.name)
        if role is Role.OUTPUT or (role is Role.EMBEDDING and self._target.tied_embeddings):
            chosen = self._output_type(tensor.shape[0])
        elif self._quant == "MXFP4_MOE":
            chosen = "MXFP4" if len(tensor.shape) > 2 and tensor.shape[2] > 1 else "Q8_0"
        else:
            chosen = self._by_rules(role, *self._position(role, tensor.name))
        return _fallback(chosen, tensor.shape[0])

    def _output_type(self, width: int) -> str:
        falcon = self._target.architecture == "falcon"
        if BY_NAME[self._recipe.base].block_elements == 1:
            return self._recipe.base
        if self._quant == "MXFP4_MOE" or falcon or width % BY_NAME[self._recipe.base].block_elements:
            return "Q8_0"
        return self._recipe.output

    def _position(self, role: Role, name: str) -> tuple[int, int]:
        """(which one, of how many): value tensors by count, the feed-forward's by layer."""
        target = self._target
        if role is Role.VALUES:
            self._values += 1
            return self._values - 1, self._value_tensors
        if target.n_expert > 1:
            return _layer_of(name), target.n_layer
        if role is Role.FFN_DOWN:
            self._downs += 1
            return self._downs - 1, target.n_layer
        return _layer_of(name), target.n_layer

    def _by_rules(self, role: Role, index: int, count: int) -> str:
        chosen = self._recipe.base
        for rule in self._recipe.rules.get(role, ()):
            if _IN_LAYERS[rule.layers](index, count) and self._applies(rule.when):
                chosen = rule.type
                break
        return self._special(role, chosen)

    def _applies(self, when: When) -> bool:
        target = self._target
        if when is When.WIDE_GROUPS:
            low_bit_experts = self._quant in _LOW_BIT and target.n_expert >= 4
            return target.query_heads_per_key >= 4 or low_bit_experts
        if when is When.IMPORTANCE_MATRIX:
            return target.importance_matrix
        if when is When.NO_IMPORTANCE_MATRIX:
            return not target.importance_matrix
        return True

    def _special(self, role: Role, chosen: str) -> str:
        """Two kinds of model whose small attention matrices are worth more bits: 70B Llamas and eight experts."""
        target = self._target
        quantised = BY_NAME[chosen].block_elements > 1
        if not quantised:
            return chosen
        seventy = target.architecture in ("llama", "qwen2", "deci") and target.n_layer == 80
        if role is Role.VALUES and seventy and target.query_heads_per_key > 1 and chosen in ("Q3_K", "Q4_K"):
            chosen = "Q5_K"
        if target.n_expert != 8:
            return chosen
        low_bit = self._quant in _LOW_BIT
        if role is Role.VALUES and not low_bit:
            return "Q8_0"
        if role is Role.KEYS:
            return "Q4_K" if low_bit else "Q8_0"
        if role is Role.ATTENTION_OUTPUT and (low_bit or self._quant in _EIGHT_EXPERT_OUTPUT_Q5):
            return "Q5_K"
        return chosen


def _more_bits(index: int, count: int) -> bool:
    eighth = count // 8
    return index < eighth or index >= 7 * count // 8 or (index - eighth) % 3 == 2


_IN_LAYERS: Final[dict[Layers, Callable[[int, int], bool]]] = {
    Layers.ALL: lambda index, count: True,
    Layers.FIRST_TWO: lambda index, count: index < 2,
    Layers.FIRST_FOUR: lambda index, count: index < 4,
    Layers.FIRST_SIXTEENTH: lambda index, count: index < count // 16,
    Layers.FIRST_EIGHTH: lambda index, count: index < count // 8,
    Layers.MORE_BITS: _more_bits,
    Layers.MIDDLE: lambda index, count: count // 8 <= index < 7 * count // 8,
}


def _role(name: str) -> Role:
    if name == "output.weight":
        return Role.OUTPUT
    if name in ("token_embd.weight", "per_layer_token_embd.weight"):
        return Role.EMBEDDING
    for part, role in _ROLES:
        if part in name:
            return role
    return Role.OTHER


def _layer_of(name: str) -> int:
    block = _BLOCK.match(name)
    return int(block[1]) if block else -1


def _fallback(kind: str, width: int) -> str:
    if width % BY_NAME[kind].block_elements == 0:
        return kind
    other = _FALLBACKS.get(kind, _FALLBACK_OF_IQ)
    return other if width % BY_NAME[other].block_elements == 0 else "F16"
