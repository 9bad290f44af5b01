"""One account of memory over everything that is loaded or loading, as pure logic: what is free, and what must go.

Two views are kept, and the smaller counts. What the driver says is free misses a load that has only begun; and on the
CPU it misses weights that are mapped, because the kernel counts their pages as available. What we promised to our own
models misses strangers. Bytes throughout, by device id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from localllm.core.machine import Device

Bytes = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Claim:
    """One owner's memory: ``settled`` once the load has ended and the driver's figures contain it."""

    owner: str
    planned: Bytes
    settled: bool = False
    measured: Bytes | None = None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that could be unloaded: idle and not pinned. ``last_used`` is monotonic seconds."""

    owner: str
    last_used: float


@dataclass(slots=True)
class Ledger:
    """Reservations are made before a load starts and kept until the memory is given back.

    ``strangers`` is what other programs are known to hold by device, such as models that Ollama loaded for others:
    mapped weights that the kernel counts as available are not free for all that.
    """

    claims: dict[str, Claim] = field(default_factory=dict)
    strangers: Bytes = field(default_factory=dict)

    def reserve(self, owner: str, planned: Bytes) -> None:
        """Promise memory to a load that is about to start."""
        self.claims[owner] = Claim(owner, dict(planned))

    def settle(self, owner: str, measured: Bytes | None = None) -> None:
        """The load is done; ``measured`` is what the engine or the driver says it took."""
        known = self.claims[owner]
        self.claims[owner] = Claim(owner, known.planned, settled=True, measured=measured)

    def release(self, owner: str) -> None:
        """The memory is free again; releasing what is not held is harmless."""
        self.claims.pop(owner, None)

    def held_bytes(self, owner: str) -> int:
        """What one owner holds over all devices, as promised; 0 when it holds nothing."""
        known = self.claims.get(owner)
        return sum(known.planned.values()) if known else 0

    def headroom(self, devices: Iterable[Device]) -> dict[str, int]:
        """What is left on each device for the next load; below zero when more is promised than there is.

        The smaller of: free now − margin − what loads in progress will still take; total − margin − all promised − what
        strangers are known to hold.
        """
        found: dict[str, int] = {}
        for device in devices:
            loading = sum(r.planned.get(device.id, 0) for r in self.claims.values() if not r.settled)
            amount = (device.free_bytes or 0) - device.margin_bytes - loading
            if device.total_bytes is not None:
                promised = sum(_claimed(r, device.id) for r in self.claims.values())
                known = promised + self.strangers.get(device.id, 0)
                amount = min(amount, device.total_bytes - device.margin_bytes - known)
            found[device.id] = amount
        return found

    def freed_by(self, owners: Iterable[str]) -> dict[str, int]:
        """What unloading these owners would give back, by device."""
        freed: dict[str, int] = {}
        for owner in owners:
            known = self.claims.get(owner)
            for device in known.planned if known else ():
                freed[device] = freed.get(device, 0) + _claimed(self.claims[owner], device)
        return freed

    def to_evict(
        self, needed: Bytes, headroom: Bytes, candidates: Sequence[Candidate]
    ) -> tuple[str, ...] | None:
        """Which candidates to unload so that ``needed`` fits: least recently used first, and no more than needed.

        () = it fits already; None = not even unloading all of them would do, so nothing should be evicted.
        """
        chosen: list[str] = []
        for candidate in sorted(candidates, key=lambda c: c.last_used):
            if _fits(needed, headroom, self.freed_by(chosen)):
                break
            if any(self.freed_by((candidate.owner,)).get(device) for device in needed):
                chosen.append(candidate.owner)
        if not _fits(needed, headroom, self.freed_by(chosen)):
            return None
        # An early choice may have become needless once a bigger one joined it: keep what is recently used.
        for owner in list(reversed(chosen)):
            rest = [other for other in chosen if other != owner]
            if _fits(needed, headroom, self.freed_by(rest)):
                chosen = rest
        return tuple(chosen)


def _claimed(claim: Claim, device: str) -> int:
    planned = claim.planned.get(device, 0)
    if claim.measured is None:
        return planned
    return max(planned, claim.measured.get(device, 0))


def _fits(needed: Bytes, headroom: Bytes, freed: Bytes) -> bool:
    return all(amount <= headroom.get(device, 0) + freed.get(device, 0) for device, amount in needed.items())
