"""Facts of files that are not here: another quantisation of a model, or a model known only by its figures."""

from __future__ import annotations

from typing import Final

from msgspec import structs

from localllm.core.facts import ModelFacts, facts_from_header
from localllm.core.gguf import GGUFHeader, TensorInfo
from localllm.core.quant import BITS_PER_WEIGHT
from localllm.core.quant_mix import RECIPES, MixTarget, Shape, known_mix, mixed, tensor_bytes
from localllm.core.shapes import Figures, header_values, tensor_shapes

_HEADER_BYTES: Final = 6 << 20
"""What a header with a usual tokenizer takes in the file."""


def requantised(facts: ModelFacts, quant: str, *, file_bytes: int | None = None) -> ModelFacts:
    """The same model as ``quant``; with ``file_bytes`` its tensors are scaled to that file's real size.

    A quant without a recipe (``UD-Q4_K_XL``) takes the nearest one's proportions, so it needs ``file_bytes``.

    Raises:
        KeyError: neither a recipe nor a size is known.
    """
    if quant == facts.quant and file_bytes is None:
        return facts
    recipe = quant if known_mix(quant) else _nearest_recipe(facts, file_bytes)
    shapes = [Shape(t.name, t.shape, _unquantised(t)) for t in facts.tensors]
    return structs.replace(
        facts,
        quant=quant,
        tensors=_typed(shapes, recipe, _target(facts), file_bytes),
        size_bytes=file_bytes or 0,
    )


def mix_bytes(facts: ModelFacts) -> int:
    """Bytes of all tensors."""
    return sum(tensor.size_bytes for tensor in facts.tensors)


def facts_from_figures(
    figures: Figures, quant: str, *, name: str | None = None, importance_matrix: bool = False
) -> ModelFacts:
    """The facts a GGUF of this model would have.

    Raises:
        KeyError: no recipe for ``quant``.
    """
    header = header_from_figures(figures, quant, name=name, importance_matrix=importance_matrix)
    return structs.replace(facts_from_header(header), quant=quant)


def header_from_figures(
    figures: Figures, quant: str, *, name: str | None = None, importance_matrix: bool = False
) -> GGUFHeader:
    """The header a GGUF of this model would have, tokenizer apart; llama.cpp accepts it for a simulation.

    Raises:
        KeyError: no recipe for ``quant``.
    """
    target = MixTarget(
        architecture=figures.architecture,
        n_layer=figures.n_layer,
        query_heads_per_key=figures.n_head // max(figures.keys, 1),
        n_expert=figures.n_expert,
        tied_embeddings=figures.tied_embeddings,
        importance_matrix=importance_matrix,
    )
    tensors = _typed(tensor_shapes(figures), quant, target, None)
    size = sum(tensor.size_bytes for tensor in tensors)
    metadata = header_values(figures)
    if name is not None:
        metadata["general.name"] = name
    return GGUFHeader(
        version=3,
        metadata=metadata,
        tensors=tensors,
        alignment=32,
        data_offset=_HEADER_BYTES,
        size_bytes=size + _HEADER_BYTES,
    )


def _target(facts: ModelFacts) -> MixTarget:
    first = next((i for i, heads in enumerate(facts.n_head_kv) if heads), 0)
    return MixTarget(
        architecture=facts.architecture,
        n_layer=facts.n_layer,
        query_heads_per_key=facts.n_head[first] // max(facts.n_head_kv[first], 1),
        n_expert=facts.n_expert,
        tied_embeddings=facts.tied_embeddings,
    )


def _unquantised(tensor: TensorInfo) -> str:
    return tensor.type if tensor.type in ("F32", "F16", "BF16", "I32") else "F16"


def _typed(
    shapes: list[Shape] | tuple[Shape, ...], quant: str, target: MixTarget, file_bytes: int | None
) -> tuple[TensorInfo, ...]:
    typed = mixed(shapes, quant, target)
    sizes = [tensor_bytes(shape) for shape in typed]
    total = sum(sizes)
    scale = 1.0
    if file_bytes is not None and total:
        scale = max(file_bytes - min(_HEADER_BYTES, file_bytes // 20), 0) / total
    return tuple(
        TensorInfo(shape.name, shape.shape, shape.type, 0, size if scale == 1.0 else round(size * scale))
        for shape, size in zip(typed, sizes, strict=True)
    )


def _nearest_recipe(facts: ModelFacts, file_bytes: int | None) -> str:
    if file_bytes is None:
        raise KeyError(f"no recipe for {facts.quant} and no size")
    bits = file_bytes * 8 / max(facts.parameters, 1)
    return min(RECIPES, key=lambda name: abs(BITS_PER_WEIGHT.get(name, 99.0) - bits))
