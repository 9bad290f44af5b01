"""Facts of well-known models, without their files."""

from __future__ import annotations

import functools

from localllm.core.derive import facts_from_figures, header_from_figures
from localllm.core.facts import ModelFacts
from localllm.core.gguf import GGUFHeader
from localllm.core.known_models import KnownModel, find_known_model, parse_known_models
from localllm.hardware.assets import asset_path


@functools.cache
def known_models() -> tuple[KnownModel, ...]:
    return parse_known_models(asset_path("known_models.jsonl").read_text(encoding="utf-8"))


@functools.cache
def facts_of(name: str, quant: str = "Q4_K_M") -> ModelFacts:
    return facts_from_figures(_known(name).figures, quant, name=name)


@functools.cache
def header_of(name: str, quant: str = "Q4_K_M") -> GGUFHeader:
    return header_from_figures(_known(name).figures, quant, name=name)


def _known(name: str) -> KnownModel:
    known = find_known_model(name, known_models())
    if known is None:
        raise KeyError(name)
    return known
