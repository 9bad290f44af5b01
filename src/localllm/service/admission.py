"""The queue before one model, as pure logic: who may run, who waits, in which order, and when it is full.

First in, first out inside a tier; priority before default before flex. A waiter gains one tier for each
``AGEING_S`` it has waited, so that flex is late but never starved. Time is passed in, never read.
"""

from __future__ import annotations

from dataclasses import dataclass

from localllm.core.errors import QueueFull
from localllm.core.generation import Tier

AGEING_S = 30.0
_RANK = {Tier.PRIORITY: 0, Tier.DEFAULT: 1, Tier.FLEX: 2}


@dataclass(frozen=True, slots=True)
class Ticket:
    """One request's place; ``number`` is its order of arrival, ``entered`` monotonic seconds."""

    number: int
    tier: Tier
    entered: float


class AdmissionQueue:
    """``capacity`` requests run at once, at most ``limit`` wait. Capacity 0 (not loaded yet) lets everyone wait."""

    def __init__(self, *, limit: int, capacity: int = 0) -> None:
        self.limit = limit
        self.capacity = capacity
        self.running: set[Ticket] = set()
        self._waiting: list[Ticket] = []
        self._arrivals = 0
        self._mean_service_s = 1.0

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def enter(self, tier: Tier, now: float) -> Ticket:
        """Join the queue.

        Raises:
            QueueFull: ``limit`` requests wait already and no place is free.
        """
        if len(self._waiting) >= self.limit and len(self.running) >= self.capacity:
            raise QueueFull(
                f"{len(self._waiting)} requests already wait for this model.",
                retry_after_s=self._expected_wait_s(),
                hint="Try again later, or raise server.queue_limit.",
            )
        self._arrivals += 1
        ticket = Ticket(self._arrivals, tier, now)
        self._waiting.append(ticket)
        return ticket

    def admit(self, now: float) -> tuple[Ticket, ...]:
        """Move as many waiters as have a place from waiting to running, best first, and return them."""
        free = self.capacity - len(self.running)
        if free <= 0 or not self._waiting:
            return ()
        chosen = tuple(self._ordered(now)[:free])
        for ticket in chosen:
            self._waiting.remove(ticket)
            self.running.add(ticket)
        return chosen

    def leave(self, ticket: Ticket, *, served_s: float | None = None) -> None:
        """Give up a place, running or waiting; leaving twice is harmless. ``served_s`` trains Retry-After."""
        self.running.discard(ticket)
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        if served_s is not None:
            self._mean_service_s += (served_s - self._mean_service_s) / 8

    def position(self, ticket: Ticket, now: float) -> int | None:
        """1 for the next to be admitted; None when it runs or is gone."""
        ordered = self._ordered(now)
        return ordered.index(ticket) + 1 if ticket in ordered else None

    def _ordered(self, now: float) -> list[Ticket]:
        return sorted(self._waiting, key=lambda ticket: (_rank(ticket, now), ticket.number))

    def _expected_wait_s(self) -> float:
        rounds = len(self._waiting) / max(1, self.capacity)
        return float(min(60, max(1, round(rounds * self._mean_service_s))))


def _rank(ticket: Ticket, now: float) -> int:
    return _RANK[ticket.tier] - int((now - ticket.entered) / AGEING_S)
