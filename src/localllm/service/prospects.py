"""What could be pulled: searching, and looking at one model closely before anything of it is fetched."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

import msgspec

from localllm.core.control import FitTable, PullPreview, PullRequest, SearchHit, SearchResults
from localllm.core.errors import LocalLLMError, StoreCorrupt
from localllm.core.facts import ModelFacts
from localllm.core.recommend import fit_table
from localllm.hardware.devices import load_device_table
from localllm.hub.blobs import disk_room
from localllm.hub.curated import Curated, CuratedModel, source_of
from localllm.hub.names import ModelName
from localllm.hub.pull_job import Job, JobProgress, Workshop
from localllm.hub.pull_plan import Prospect, Recommend, prepare
from localllm.hub.references import CatalogueReference, Reference, parse_reference
from localllm.service.machine import MachineReadings

KEPT_S = 120.0


class Prospects:
    """``get`` is what a pull begins from; what was just shown to a person is not asked of the source again."""

    def __init__(self, workshop: Workshop, curated: Curated, machine: MachineReadings) -> None:
        self._shop = workshop
        self._curated = curated
        self._machine = machine
        self._kept: dict[tuple[str, str | None], tuple[float, Prospect]] = {}

    async def search(self, query: str, *, limit: int = 20) -> SearchResults:
        """The catalogue first, then Hugging Face by downloads; a source that cannot be asked is named."""
        words = query.lower().split()
        hits = [
            _hit(model)
            for model in self._curated.models
            if all(
                word in " ".join((model.name, model.title, model.maker, *model.purposes)).lower()
                for word in words
            )
        ][:limit]
        problems: list[str] = []
        try:
            hits += await self._shop.sources.hugging_face.search(query, limit=limit)
        except LocalLLMError as error:
            problems.append(f"Hugging Face: {error.message}")
        return SearchResults(hits=tuple(hits), problems=tuple(problems))

    async def preview(self, request: PullRequest) -> PullPreview:
        """What a pull would fetch, and whether it fits. Raises what ``prepare`` raises, and BadName."""
        prospect = await self.get(request)
        plan, facts = prospect.plan, prospect.facts
        job = Job(self._shop, plan, _ignore)
        missing = await asyncio.to_thread(job.missing_bytes)
        free, reserve = await asyncio.to_thread(disk_room, self._shop.store.root)
        return PullPreview(
            reference=request.reference,
            name=plan.name,
            origin=plan.origin,
            quant=plan.quant,
            quant_reason=prospect.quant_reason,
            files=tuple(file.name for file in plan.all_files),
            size_bytes=plan.size_bytes,
            missing_bytes=missing,
            free_bytes=free,
            reserve_bytes=reserve,
            architecture=facts.architecture if facts else None,
            parameters=facts.parameters if facts else None,
            trained_context_length=facts.trained_context_length if facts else None,
            licence=plan.licence,
            capabilities=facts.capabilities if facts else (),
            foreign=prospect.foreign,
            fit=prospect.fit,
            here=await asyncio.to_thread(self._is_here, plan.name),
        )

    async def get(self, request: PullRequest) -> Prospect:
        """The plan of a pull, and what is known about the model. Raises what ``prepare`` raises, and BadName."""
        now = time.monotonic()
        key = (request.reference, request.quant)
        self._kept = {k: kept for k, kept in self._kept.items() if now - kept[0] < KEPT_S}
        if key not in self._kept:
            reference: Reference = parse_reference(request.reference)
            quant, name = request.quant, None
            if isinstance(reference, CatalogueReference):
                model, tag = self._curated.find(reference)
                quant, name = quant or tag, model.name
                reference = source_of(model)
            prospect = await prepare(
                self._shop.sources, reference, recommend=await self._recommender(), quant=quant
            )
            if name is not None:
                plan = prospect.plan
                local = str(ModelName(name, plan.quant)) if plan.quant else name
                prospect = msgspec.structs.replace(
                    prospect, plan=msgspec.structs.replace(plan, name=local, reference=request.reference)
                )
            self._kept[key] = (now, prospect)
        return self._kept[key][1]

    async def _recommender(self) -> Recommend:
        machine = await self._machine.get()

        def recommend(facts: ModelFacts, sizes: Mapping[str, int]) -> FitTable:
            return fit_table(
                facts,
                machine,
                model=facts.name or "model",
                here={},
                listed=sizes,
                device_table=load_device_table(),
            )

        return recommend

    def _is_here(self, name: str) -> bool:
        try:
            return self._shop.store.manifest(name) is not None
        except StoreCorrupt:
            return False


def _hit(model: CuratedModel) -> SearchHit:
    return SearchHit(
        reference=model.name,
        title=model.title,
        source="catalogue",
        parameters=model.parameters,
        licence=model.licence,
        purposes=model.purposes,
        why=model.note,
    )


def _ignore(progress: JobProgress) -> None:
    """A job that is only asked what is missing tells nobody."""
