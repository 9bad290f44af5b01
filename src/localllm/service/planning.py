"""What the manager asks of a planner, so that its tests can decide what fits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from msgspec import Struct

from localllm.core.control import LoadRequest
from localllm.core.facts import ModelFacts
from localllm.core.launch import LaunchPlan
from localllm.core.machine import Device
from localllm.core.memory import MemoryEstimate
from localllm.hub.store import StoredModel


class Planned(Struct, frozen=True, kw_only=True):
    """What a load will ask for. ``bytes_by_device`` is its claim on each device; ``reason`` one sentence.

    ``total_bytes`` is what it takes in all, for people: unified memory is claimed on two devices and taken once.
    ``memory`` is the estimate before what earlier loads taught was applied: what this load is compared with.
    """

    launch: LaunchPlan
    bytes_by_device: dict[str, int]
    total_bytes: int | None = None
    memory: MemoryEstimate | None = None
    total_layers: int | None = None
    reason: str | None = None
    warnings: tuple[str, ...] = ()


class Planning(Protocol):
    async def devices(self) -> tuple[Device, ...]:
        """The machine's devices with what is free on them now."""
        ...

    async def facts(self, model: StoredModel) -> ModelFacts:
        """The figures in the model's header. Raises GGUFError."""
        ...

    async def plan(
        self,
        model: StoredModel,
        request: LoadRequest,
        available_bytes: Mapping[str, int],
        *,
        embedding: bool = False,
    ) -> Planned:
        """Decide how to load ``model`` within ``available_bytes`` per device, to answer or for embeddings.

        Raises:
            DoesNotFit: not even the smallest form of it fits.
            GGUFError: the file is no model we can read.
        """
        ...
