"""Plans for engines that keep models themselves: Ollama's own, and remotes', which take no memory of this machine."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from localllm.core.config import EngineSettings
from localllm.core.control import LoadRequest
from localllm.core.errors import DoesNotFit, GGUFError
from localllm.core.facts import ModelFacts
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device
from localllm.core.units import format_bytes
from localllm.hub.store import StoredModel
from localllm.service.engine_choice import OLLAMA_OWNER, is_remote
from localllm.service.planning import Planned, Planning

UNKNOWN_CONTEXT_LENGTH = 4096
"""Ollama's own default, for a model whose header only Ollama can read."""

_BESIDE_WEIGHTS = 1.25  # of the file's size: KV, scratch and the runner, when nothing better is known


class EnginePlanner:
    """``Planning`` that hands everything to ``inner`` which an engine of ours loads from a file of its own.

    ``ollama_parallel``: how many requests Ollama answers at once; it decides that, not the load.
    """

    def __init__(self, inner: Planning, settings: EngineSettings, *, ollama_parallel: int) -> None:
        self._inner = inner
        self._settings = settings
        self._ollama_parallel = ollama_parallel

    async def devices(self) -> tuple[Device, ...]:
        return await self._inner.devices()

    async def facts(self, model: StoredModel) -> ModelFacts:
        return await self._inner.facts(model)

    async def plan(
        self,
        model: StoredModel,
        request: LoadRequest,
        available_bytes: Mapping[str, int],
        *,
        embedding: bool = False,
    ) -> Planned:
        if is_remote(model):
            return self._elsewhere(model, embedding)
        if request.engine != "ollama":
            return await self._inner.plan(model, request, available_bytes, embedding=embedding)
        request = replace(request, parallel=self._ollama_parallel)
        try:
            planned = await self._inner.plan(model, request, available_bytes, embedding=embedding)
        except GGUFError:
            planned = self._by_size(model, request, available_bytes, embedding)
        if model.owner == OLLAMA_OWNER:
            return replace(
                planned, launch=replace(planned.launch, engine_model=model.name_there or model.name)
            )
        return planned

    def _elsewhere(self, model: StoredModel, embedding: bool) -> Planned:
        launch = LaunchPlan(
            model_path=model.name,
            context_length=model.trained_context_length or 1,
            embedding=embedding,
            engine_model=model.name.partition("/")[2],
            stop=model.stop,
        )
        return Planned(launch=launch, bytes_by_device={}, total_bytes=0, reason="runs on another machine")

    def _by_size(
        self, model: StoredModel, request: LoadRequest, available_bytes: Mapping[str, int], embedding: bool
    ) -> Planned:
        """For a file that only Ollama can read: its size is all that is known of it."""
        needed = int(model.size_bytes * _BESIDE_WEIGHTS)
        device, available = max(
            available_bytes.items(), key=lambda item: (item[1] >= needed and item[0] != "cpu", item[1])
        )
        if needed > available and not request.force:
            raise DoesNotFit(
                f"{model.name} needs about {format_bytes(needed)}, {format_bytes(max(0, available))} are free.",
                hint="Unload another model, or load it all the same with --force.",
                details={"needed_bytes": needed, "available_bytes": available, "ways_out": []},
            )
        launch = LaunchPlan(
            model_path=str(model.path),
            context_length=request.context_length or self._settings.context_length or UNKNOWN_CONTEXT_LENGTH,
            parallel=self._ollama_parallel,
            threads=request.threads or self._settings.threads,
            embedding=embedding,
            stop=model.stop,
            engine_model=model.name_there or model.name,
        )
        return Planned(
            launch=launch,
            bytes_by_device={device: needed},
            total_bytes=needed,
            reason="by the size of its file, which only Ollama can read",
        )
