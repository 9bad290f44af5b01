"""The catalogue: models that people really run, one entry each, with what it is good for and where to get it.

Short names (``qwen3:8b``) are looked up here and nowhere else. It ships with localllm and works without a network.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from localllm.core.errors import ChecksumMismatch, HubError, ModelAmbiguous, ModelNotFound, StoreCorrupt
from localllm.hub.download.wire import fetch_small, new_client, origin
from localllm.hub.names import near_names, quant_of_file
from localllm.hub.references import (
    CatalogueReference,
    HuggingFaceReference,
    OllamaReference,
    parse_reference,
)

log = logging.getLogger(__name__)

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


def local_name(curated: Curated, reference: str) -> str | None:
    """What a pull of ``reference`` calls the model here, as far as the reference says; None when it says nothing.

    So whatever was typed to pull a model can be typed to run it.
    """
    try:
        parsed = parse_reference(reference)
        match parsed:
            case CatalogueReference():
                model, quant = curated.find(parsed)
                return f"{model.name}:{quant}" if quant else model.name
            case HuggingFaceReference():
                return f"{parsed.repository}:{parsed.quant}" if parsed.quant else parsed.repository
            case OllamaReference():
                space = "" if parsed.namespace == "library" else f"{parsed.namespace}/"
                return f"{space}{parsed.name}:{parsed.tag}"
            case _:
                return None
    except HubError:
        return None


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


def newest_catalogue(shipped: Path, fetched: Path) -> Catalogue:
    """The one at ``fetched`` when it is later than the shipped one; a damaged one is logged and not used."""
    catalogue = read_catalogue(shipped)
    if not fetched.is_file():
        return catalogue
    try:
        later = read_catalogue(fetched)
    except StoreCorrupt as error:
        log.warning("the fetched catalogue is not used", extra={"error": error.message})
        return catalogue
    return later if later.revision > catalogue.revision else catalogue


async def fetch_catalogue(url: str, sha256: str, target: Path) -> Catalogue:
    """Fetch a catalogue and put it at ``target``, when its digest (hex) is the one given.

    Raises:
        ChecksumMismatch: it is not what its publisher named; ``target`` stays as it was.
        StoreCorrupt: it is no catalogue.
        Offline, NotFound, DownloadFailed, HubError: it could not be fetched or written.
    """
    async with new_client() as client:
        body, _ = await fetch_small(
            client, url, "the catalogue", token=None, trusted=(origin(url),), limit_bytes=MAX_BYTES
        )
    found = hashlib.sha256(body).hexdigest()
    if found != sha256.lower():
        raise ChecksumMismatch(
            "The catalogue has another SHA-256 than the one given; it was not taken.",
            hint="Ask its publisher for the digest again.",
            details={"expected": sha256, "found": found},
        )
    catalogue = decode_catalogue(body)
    beside = target.with_suffix(".new")
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside.write_bytes(body)
        beside.replace(target)
    except OSError as error:
        raise HubError(f"{target} cannot be written: {error.strerror}.") from error
    return catalogue
