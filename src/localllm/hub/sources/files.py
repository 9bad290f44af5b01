"""From a repository's list of files to what can be pulled: which of them make one model, and in which quantisation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from localllm.core.errors import ModelAmbiguous, NotFound
from localllm.hub.names import base_of_file, parse_shard, quant_of_file
from localllm.hub.sources.base import RemoteFile, Variant

# Files beside a model that are GGUF but no language model of their own.
_NOT_A_MODEL = re.compile(
    r"mmproj|imatrix|(?:^|[-_.])(?:mtp|eagle3?|draft|vocab|lora|control-vector)[-_.]", re.IGNORECASE
)
_PROJECTOR_ORDER = ("F16", "BF16", "Q8_0", "F32")


def variants_of(files: Iterable[RemoteFile]) -> tuple[Variant, ...]:
    """The models among ``files``, the largest first. A split set counts only when all its parts are in one folder."""
    single: list[Variant] = []
    sets: dict[tuple[str, str, int], dict[int, RemoteFile]] = {}
    for file in files:
        folder, _, name = file.name.rpartition("/")
        if not name.lower().endswith(".gguf") or _NOT_A_MODEL.search(name):
            continue
        shard = parse_shard(name)
        if shard is None or shard.count == 1:
            single.append(Variant(quant=_quant(folder, name), files=(file,)))
        else:
            sets.setdefault((folder, shard.prefix, shard.count), {})[shard.number] = file
    split = [
        Variant(
            quant=_quant(folder, parts[1].name.rpartition("/")[2]),
            files=tuple(parts[n] for n in sorted(parts)),
        )
        for (folder, _, count), parts in sets.items()
        if len(parts) == count
    ]
    return tuple(sorted((*single, *split), key=lambda variant: -variant.size_bytes))


def projectors_of(files: Iterable[RemoteFile]) -> tuple[RemoteFile, ...]:
    """Vision projectors among ``files``, the one to take first."""
    found = [file for file in files if "mmproj" in file.name.lower() and file.name.lower().endswith(".gguf")]

    def rank(file: RemoteFile) -> int:
        upper = file.name.upper()
        return next(
            (n for n, kind in enumerate(_PROJECTOR_ORDER) if re.search(rf"[-_.]{kind}\.GGUF$", upper)), 9
        )

    return tuple(sorted(found, key=lambda file: (rank(file), file.size_bytes)))


def variant_with_file(variants: Sequence[Variant], path: str) -> Variant:
    """The variant that the file belongs to. Raises NotFound, naming what there is."""
    for variant in variants:
        if any(file.name == path for file in variant.files):
            return variant
    names = ", ".join(variant.files[0].name for variant in variants[:8])
    raise NotFound(
        f"There is no model file {path!r} there.", hint=f"There is: {names or 'no GGUF file at all'}"
    )


def variant_of_quant(variants: Sequence[Variant], quant: str) -> Variant:
    """The variant of that quantisation, whatever the case of its letters.

    Raises:
        NotFound: there is none; the hint lists those there are.
        ModelAmbiguous: several files have it; the hint lists them.
    """
    found = [variant for variant in variants if (variant.quant or "").upper() == quant.upper()]
    if not found:
        there = ", ".join(dict.fromkeys(variant.quant or variant.files[0].name for variant in variants))
        raise NotFound(
            f"There is no {quant} of it there.", hint=f"There is: {there or 'no GGUF file at all'}"
        )
    return _only(found)


def distinct(variants: Sequence[Variant]) -> dict[str, Variant]:
    """Quantisation → variant, for the fit table.

    Raises:
        ModelAmbiguous: the repository holds several models, so a quantisation does not say which.
    """
    bases = {base_of_file(variant.files[0].name.rpartition("/")[2]) for variant in variants}
    if len(bases) > 1:
        _only(variants)
    return {variant.quant: variant for variant in reversed(variants) if variant.quant}


def _only(found: Sequence[Variant]) -> Variant:
    if len(found) == 1:
        return found[0]
    names = [variant.files[0].name for variant in found]
    raise ModelAmbiguous(
        "Several models there answer to that name.",
        hint=f"Say which file, after a colon: {', '.join(names[:8])}",
        param="model",
        details={"names": names},
    )


def _quant(folder: str, name: str) -> str | None:
    return quant_of_file(name) or (quant_of_file(folder.rpartition("/")[2] + ".gguf") if folder else None)
