"""The catalogue: models that people really run, one entry each, with what it is good for and where to get it.

Short names (``qwen3:8b``) are looked up here and nowhere else. It ships with localllm and works without a network.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from localllm.core.errors import ModelAmbiguous, ModelNotFound, StoreCorrupt
from localllm.hub.names import near_names, quant_of_file
from localllm.hub.references import CatalogueReference, HuggingFaceReference

FORMAT = 1
MAX_BYTES = 8 << 20


class CuratedModel(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``name`` is what it is called here and ``aliases`` how else people call it; ``repositories`` at Hugging Face
    hold its GGUF files, the one to take first. ``parameters`` of a mixture are all of them, ``active`` those of a token.
    """

    name: str
    title: str
    maker: str
    parameters: int
    active: int | None = None
    context_length: int
    architecture: str
    licence: str
    purposes: tuple[str, ...]
    capabilities: tuple[str, ...] = ()
    note: str | None = None
    aliases: tuple[str, ...] = ()
    repositories: tuple[str, ...]
    makers_repository: str | None = None


class Catalogue(Struct, frozen=True, kw_only=True):
    """The file ``catalogue.json``; ``revision`` is its date."""

    format: int
    revision: str
    models: tuple[CuratedModel, ...]


class Curated:
    """The catalogue, looked up by name."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._by_name = {
            name.lower(): model for model in catalogue.models for name in (*model.aliases, model.name)
        }

    @property
    def models(self) -> Sequence[CuratedModel]:
        return self.catalogue.models

    def find(self, reference: CatalogueReference) -> tuple[CuratedModel, str | None]:
        """The model, and the quantisation when the reference ends in one.

        Raises:
            ModelNotFound: with near names, and where else to look.
            ModelAmbiguous: the name is that of a family; the hint lists its sizes.
        """
        words = [reference.name, *reference.tags]
        last = words[-1] if len(words) > 1 and quant_of_file(f"m-{words[-1]}.gguf") else None
        asked = ":".join(words[:-1] if last else words).lower()
        model = self._by_name.get(asked) or self._by_name.get(asked.replace(":", "-"))
        if model is not None:
            return model, last
        family = [each for each in self.models if re.match(rf"{re.escape(asked)}[-:]\d", each.name)]
        if len(family) == 1:
            return family[0], last
        if family:
            raise ModelAmbiguous(
                f"{asked} comes in {len(family)} sizes.",
                hint=f"Say which: {', '.join(each.name for each in family)}",
                param="model",
                details={"names": [each.name for each in family]},
            )
        near = near_names(asked, self._by_name)
        meant = f"Did you mean {', '.join(near)}? Or look further" if near else "Look further"
        raise ModelNotFound(
            str(reference),
            near=near,
            hint=f"{meant}: localllm search {reference.name}, or pull it from Ollama's registry: ollama:{reference}",
        )


def source_of(model: CuratedModel) -> HuggingFaceReference:
    """Where the catalogue says to get it."""
    org, _, repo = model.repositories[0].partition("/")
    return HuggingFaceReference(org=org, repo=repo)


def read_catalogue(path: Path) -> Catalogue:
    """Raises StoreCorrupt when it cannot be read."""
    try:
        with path.open("rb") as file:
            return decode_catalogue(file.read(MAX_BYTES + 1))
    except OSError as error:
        raise StoreCorrupt(f"The catalogue {path} cannot be read: {error.strerror}.") from error


def decode_catalogue(content: bytes) -> Catalogue:
    """Raises StoreCorrupt when it is no catalogue, or one of a later version."""
    try:
        catalogue = msgspec.json.decode(content, type=Catalogue)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"The catalogue is damaged: {error}.") from error
    if catalogue.format > FORMAT or len(content) > MAX_BYTES:
        raise StoreCorrupt("The catalogue was written for a later version of localllm.")
    return catalogue
