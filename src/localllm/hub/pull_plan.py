"""From a reference to a plan: what to fetch, in which quantisation and why, and whether it fits machine and disk.

Everything is learnt from listings and from the file's header; no weight is fetched here. The plan is plain data: it is
written down when the pull begins, and a pull goes on from it whatever happened in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import assert_never

import httpx
from msgspec import Struct

from localllm.core.control import FitTable
from localllm.core.errors import BadRequest, GGUFError, LocalLLMError
from localllm.core.facts import ModelFacts, facts_from_header
from localllm.core.generation import Sampling
from localllm.core.gguf import GGUFHeader
from localllm.hub.download.transfer import Located
from localllm.hub.foreign import foreign_reason
from localllm.hub.gguf_file import join_headers
from localllm.hub.names import ModelName, parse_name
from localllm.hub.references import (
    CatalogueReference,
    HuggingFaceReference,
    OllamaReference,
    PathReference,
    Reference,
    UrlReference,
)
from localllm.hub.remote_header import read_remote_header
from localllm.hub.sources.base import Access, Offer, RemoteFile, Variant
from localllm.hub.sources.files import distinct, variant_of_quant, variant_with_file
from localllm.hub.sources.hugging_face import HuggingFace
from localllm.hub.sources.ollama_registry import OllamaRegistry
from localllm.hub.sources.url import Url

Recommend = Callable[[ModelFacts, Mapping[str, int]], FitTable]
"""The planner on this machine: facts of one file, bytes by quantisation → the table with its recommendation."""

_HEADERS_AT_ONCE = 4


class PullPlan(Struct, frozen=True, kw_only=True):
    """What a pull fetches and what the model will be called. ``files`` are its parts in order."""

    reference: str
    name: str
    origin: str
    quant: str | None
    files: tuple[RemoteFile, ...]
    projector: RemoteFile | None = None
    chat_template: str | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    licence: str | None = None

    @property
    def all_files(self) -> tuple[RemoteFile, ...]:
        return self.files if self.projector is None else (*self.files, self.projector)

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.all_files)


class Prospect(Struct, frozen=True, kw_only=True):
    """A plan with what is known about the model. ``facts`` None: only Ollama understands it (``foreign`` says why)."""

    plan: PullPlan
    quant_reason: str
    facts: ModelFacts | None
    fit: FitTable | None
    foreign: str | None


class Sources:
    """The sources behind one door: what a reference offers, and where a file is, whichever kind it is."""

    def __init__(self, client: httpx.AsyncClient, access: Access) -> None:
        self.client = client
        self.hugging_face = HuggingFace(client, access)
        self.ollama = OllamaRegistry(client, access)
        self.url = Url(client, access)

    async def offer(self, reference: Reference) -> Offer:
        """What there is. Raises what the source raises, and BadRequest for a path: that is imported, not pulled."""
        match reference:
            case HuggingFaceReference():
                return await self.hugging_face.offer(reference)
            case OllamaReference():
                return await self.ollama.offer(reference)
            case UrlReference():
                return await self.url.offer(reference)
            case PathReference():
                raise BadRequest(
                    f"{reference.path} is a file here; there is nothing to pull.",
                    hint=f"Take it into the store with: localllm import {reference.path}",
                    param="reference",
                )
            case CatalogueReference():
                raise BadRequest(f"{reference} is to be looked up in the catalogue first.", param="reference")
            case _:
                assert_never(reference)

    async def locate(self, file: RemoteFile) -> Located:
        match file.source:
            case "hugging_face":
                return await self.hugging_face.locate(file)
            case "ollama":
                return await self.ollama.locate(file)
            case "url":
                return await self.url.locate(file)
            case _:
                assert_never(file.source)


async def prepare(
    sources: Sources,
    reference: Reference,
    *,
    recommend: Recommend,
    quant: str | None = None,
    name: str | None = None,
) -> Prospect:
    """List, choose the quantisation, read the header, plan.

    ``quant`` and ``name`` override what the reference says; without any quantisation the planner's is taken.

    Raises:
        NotFound, ModelAmbiguous, Gated, Offline, RateLimited, DownloadFailed, BadName, GGUFError.
    """
    offer = await sources.offer(reference)
    wanted = quant or (reference.quant if isinstance(reference, HuggingFaceReference) else None)
    file = reference.file if isinstance(reference, HuggingFaceReference) and not quant else None
    if file is not None:
        variant, reason = variant_with_file(offer.variants, file), "the file that was asked for"
    elif wanted is not None:
        variant, reason = variant_of_quant(offer.variants, wanted), "asked for"
    elif len(offer.variants) == 1:
        variant, reason = offer.variants[0], "the only one there"
    else:
        return await _recommended(sources, reference, offer, recommend, name)
    header = await _header(sources, variant)
    return await asyncio.to_thread(
        _prospect, reference, offer, variant, header, reason=reason, recommend=recommend, name=name
    )


async def _recommended(
    sources: Sources, reference: Reference, offer: Offer, recommend: Recommend, name: str | None
) -> Prospect:
    """Any one file's header gives the figures; the table then says which quantisation is best here."""
    by_quant = distinct(offer.variants)
    if not by_quant:
        variant = offer.variants[-1]
        header = await _header(sources, variant)
        return await asyncio.to_thread(
            _prospect,
            reference,
            offer,
            variant,
            header,
            reason="the smallest; the files' names do not say more",
            recommend=recommend,
            name=name,
        )
    probe = min(by_quant.values(), key=lambda variant: (len(variant.files), variant.size_bytes))
    header = await _header(sources, probe)
    sizes = {quant: variant.size_bytes for quant, variant in by_quant.items()}
    try:
        table = await asyncio.to_thread(recommend, facts_from_header(header), sizes)
    except GGUFError:
        table = None
    variant, reason = (
        _nearest(by_quant, table) if table else (by_quant.get("Q4_K_M", probe), "the usual choice")
    )
    if variant is not probe:
        header = await _header(sources, variant)
    return await asyncio.to_thread(
        _prospect, reference, offer, variant, header, reason=reason, recommend=recommend, name=name
    )


def _nearest(by_quant: Mapping[str, Variant], table: FitTable) -> tuple[Variant, str]:
    """What is recommended here, or the closest to it that this source has: not larger, if there is one."""
    best = next((row for row in table.rows if row.recommended), None)
    if best is None:
        return min(
            by_quant.values(), key=lambda v: v.size_bytes
        ), table.recommendation or "the smallest there"
    if best.quant in by_quant:
        return by_quant[best.quant], best.reason or "recommended here"
    smaller = [variant for variant in by_quant.values() if variant.size_bytes <= best.file_bytes]
    reason = f"the closest there to {best.quant}, which would be best here"
    if smaller:
        return max(smaller, key=lambda variant: variant.size_bytes), reason
    return min(by_quant.values(), key=lambda variant: variant.size_bytes), reason


async def _header(sources: Sources, variant: Variant) -> GGUFHeader:
    gate = asyncio.Semaphore(_HEADERS_AT_ONCE)

    async def one(file: RemoteFile) -> GGUFHeader:
        async with gate:
            return await read_remote_header(sources.client, await sources.locate(file), file.name)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(file)) for file in variant.files]
    except BaseExceptionGroup as several:
        ours, _ = several.split(LocalLLMError)
        raise (ours or several).exceptions[0] from several
    headers = [task.result() for task in tasks]
    return headers[0] if len(headers) == 1 else join_headers(variant.files[0].name, headers)


def _prospect(
    reference: Reference,
    offer: Offer,
    variant: Variant,
    header: GGUFHeader,
    *,
    reason: str,
    recommend: Recommend,
    name: str | None,
) -> Prospect:
    foreign = foreign_reason(header)
    facts = facts_from_header(header) if foreign is None else None
    quant = variant.quant or (facts.quant if facts else None)
    sizes = {v.quant: v.size_bytes for v in offer.variants if v.quant} or (
        {quant: variant.size_bytes} if quant else {}
    )
    plan = PullPlan(
        reference=str(reference),
        name=name or str(_local_name(offer, variant, quant)),
        origin=offer.origin,
        quant=quant,
        files=variant.files,
        projector=offer.projectors[0] if offer.projectors else None,
        chat_template=offer.chat_template,
        stop=offer.stop,
        sampling=offer.sampling,
        licence=offer.licence or (facts.licence if facts else None),
    )
    return Prospect(
        plan=plan,
        quant_reason=reason,
        facts=facts,
        fit=recommend(facts, sizes) if facts else None,
        foreign=foreign,
    )


def _local_name(offer: Offer, variant: Variant, quant: str | None) -> ModelName:
    """What the model is called here; it can be pulled by that name again. Raises BadName when the source's is none."""
    tag = offer.tag or variant.quant or quant
    return parse_name(f"{offer.name}:{tag}" if tag else offer.name)
