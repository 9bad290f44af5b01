"""Making room for a load: what is free, what may be unloaded for it, and when it is better to wait.

Loads are planned one at a time, so that two never count the same free memory; the loads themselves run side by side.
A busy model is never cut off: it takes no new requests, finishes what it has, and is unloaded then. Nothing is
unloaded unless that is known to be enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from localllm.core.control import InstancePhase, LoadRequest
from localllm.core.errors import DoesNotFit
from localllm.core.machine import Device
from localllm.service.ledger import Candidate, Ledger
from localllm.service.planning import Planned, Planning
from localllm.service.resident import Resident

log = logging.getLogger(__name__)

Strangers = Callable[[Sequence[Device]], Awaitable[Mapping[str, int]]]
"""What programs that are not ours hold now, by device; bytes."""

_LEAVING = (InstancePhase.DRAINING, InstancePhase.UNLOADING)


class Room:
    """``residents`` gives every model the manager knows; ``max_loaded`` is how many may stay loaded at once.

    ``strangers`` is asked before each decision.
    """

    def __init__(
        self,
        residents: Callable[[], Iterable[Resident]],
        planning: Planning,
        ledger: Ledger,
        *,
        max_loaded: int,
        strangers: Strangers | None = None,
    ) -> None:
        self.max_loaded = max_loaded
        self.strangers = strangers
        self._residents = residents
        self._planning = planning
        self._ledger = ledger
        self._turn = asyncio.Lock()
        self._moved = asyncio.Event()

    def moved(self) -> None:
        """A model has changed its phase: whoever waits for room looks again."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def reserve(self, resident: Resident, request: LoadRequest) -> Planned:
        """Plan a load and promise it its memory.

        Raises:
            DoesNotFit: not even with everything unloaded that may be.
        """
        while True:
            async with self._turn:
                moved = self._moved
                try:
                    planned = await self._plan(resident, request)
                except _NotYet:
                    pass
                except DoesNotFit:
                    if not self._something_moves(resident):
                        raise
                else:
                    self._ledger.reserve(resident.key, planned.bytes_by_device)
                    return planned
            # what is loading can be evicted soon, what is leaving gives its memory back
            await moved.wait()

    async def budget_for(self, name: str) -> dict[str, int]:
        """What a load of ``name`` could plan with now, by device: what is free and what it holds itself."""
        headroom = await self._headroom()
        freed = self._ledger.freed_by(r.key for r in self._residents() if r.name == name)
        return {device: max(0, amount + freed.get(device, 0)) for device, amount in headroom.items()}

    async def _headroom(self) -> dict[str, int]:
        devices = await self._planning.devices()
        if self.strangers is not None:
            self._ledger.strangers = await self.strangers(devices)
        return self._ledger.headroom(devices)

    async def relieve(self) -> str | None:
        """Unload the idle model that was used least recently, for a machine that runs out of memory; its name."""
        idle = sorted(
            (r for r in self._residents() if r.slot.evictable and not r.in_use and not r.pinned),
            key=lambda r: r.last_used,
        )
        if not idle:
            return None
        await idle[0].unload(drain_s=None)
        return idle[0].name

    async def _plan(self, resident: Resident, request: LoadRequest) -> Planned:
        """Within what is free, else with idle models evicted, else once busy ones have finished."""
        others = [r for r in self._residents() if r is not resident and r.slot.serving and not r.pinned]
        await self._make_count_fit(resident, others)
        headroom = await self._headroom()
        try:
            return await self._ask(resident, request, headroom)
        except DoesNotFit as error:
            refusal = error
        for pool in ([r for r in others if not r.in_use], others):
            freed = self._ledger.freed_by(r.key for r in pool)
            budget = {device: amount + freed.get(device, 0) for device, amount in headroom.items()}
            try:
                planned = await self._ask(resident, request, budget)
            except DoesNotFit:
                continue
            candidates = [Candidate(r.key, r.last_used) for r in pool]
            victims = self._ledger.to_evict(planned.bytes_by_device, headroom, candidates)
            if victims is not None:
                for victim in [r for r in pool if r.key in victims]:
                    await self._evict(victim, resident)
                return planned
        raise refusal

    async def _ask(self, resident: Resident, request: LoadRequest, budget: Mapping[str, int]) -> Planned:
        available = {device: max(0, amount) for device, amount in budget.items()}
        return await self._planning.plan(resident.model, request, available, embedding=resident.embedding)

    async def _make_count_fit(self, resident: Resident, others: list[Resident]) -> None:
        """Unload what is over ``max_loaded``, idle ones first; those taken leave ``others``.

        Raises:
            _NotYet: one that is loading has to go, and cannot before it is loaded.
        """
        rest = [r for r in self._residents() if r is not resident]
        loading = sum(self._takes_memory_soon(r) for r in rest)
        too_many = sum(r.slot.serving for r in rest) + loading + 1 - self.max_loaded
        if too_many > len(others) and loading:
            raise _NotYet
        for victim in sorted(others, key=lambda r: (r.in_use, r.last_used))[: max(0, too_many)]:
            await self._evict(victim, resident)
            others.remove(victim)

    async def _evict(self, victim: Resident, newcomer: Resident) -> None:
        log.info("evicting a model", extra={"model": victim.name, "for_model": newcomer.name})
        if victim.slot.serving:
            await victim.unload(drain_s=None)

    def _takes_memory_soon(self, resident: Resident) -> bool:
        """Whether it is loading, with its memory promised already."""
        return resident.slot.phase is InstancePhase.LOADING and self._ledger.held_bytes(resident.key) > 0

    def _something_moves(self, resident: Resident) -> bool:
        """Whether waiting may help: another model will be there to be evicted soon, or is leaving."""
        return any(
            r.slot.phase in _LEAVING or self._takes_memory_soon(r)
            for r in self._residents()
            if r is not resident
        )


class _NotYet(Exception):
    """There will be room when a load that is under way has ended."""
