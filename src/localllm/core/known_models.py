"""Well-known models by name: the figures that let a model be planned for before anything of it is downloaded.

Pure: the parser takes the text of ``assets/known_models.jsonl``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec
from msgspec import Struct

from localllm.core.shapes import Figures


class KnownModel(Struct, frozen=True):
    """``names`` are how people call it; variants that differ only in training share one entry."""

    names: tuple[str, ...]
    figures: Figures


def parse_known_models(text: str) -> tuple[KnownModel, ...]:
    """One JSON object a line: ``names`` beside the fields of ``Figures``.

    Raises:
        msgspec.ValidationError: a line is no such object.
    """
    found: list[KnownModel] = []
    for line in filter(None, text.splitlines()):
        entry = msgspec.json.decode(line, type=dict[str, object])
        names = msgspec.convert(entry.pop("names"), tuple[str, ...])
        found.append(KnownModel(names, msgspec.convert(entry, Figures)))
    return tuple(found)


def find_known_model(name: str, models: Iterable[KnownModel]) -> KnownModel | None:
    """The model whose name is part of ``name`` (``bartowski/Meta-Llama-3.1-8B-Instruct-GGUF``); the longest wins."""
    wanted = _plain(name)
    best: tuple[int, KnownModel] | None = None
    for model in models:
        for label in model.names:
            plain = _plain(label)
            if _contains(wanted, plain) and (best is None or len(plain) > best[0]):
                best = (len(plain), model)
    return None if best is None else best[1]


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _contains(wanted: str, label: str) -> bool:
    """Not in the middle of a number or unit: ``Qwen2.5-3B`` is not in ``Qwen2.5-3B…`` of another size."""
    at = wanted.find(label)
    return at >= 0 and not (label[0].isdigit() and at > 0 and wanted[at - 1].isdigit())
