"""A place in a loaded model: what the pipeline asks the manager for, and what it gets while it waits.

Only the shapes both sides share; how a place is found is ``service/manager.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from msgspec import Struct

from localllm.core.control import RequestPhase
from localllm.core.generation import Sampling, Tier
from localllm.engines.base import Instance, InstanceInfo


class Waiting(Struct, frozen=True, kw_only=True):
    """Why a request has not begun: the model is loading (``fraction`` 0…1) or busy (``position`` from 1)."""

    phase: RequestPhase
    position: int | None = None
    stage: str | None = None
    fraction: float | None = None


OnWaiting = Callable[[Waiting], None]


@dataclass(frozen=True, slots=True)
class Lease:
    """One admitted request: generate on ``instance`` until the context that gave the lease is left.

    ``sampling`` are the model's own defaults.
    """

    model: str
    instance: Instance
    info: InstanceInfo
    queue_ms: float
    sampling: Sampling


class Leasing(Protocol):
    """The part of the manager that the pipeline needs."""

    def lease(
        self,
        model: str,
        *,
        tier: Tier = Tier.DEFAULT,
        embedding: bool = False,
        on_waiting: OnWaiting | None = None,
    ) -> AbstractAsyncContextManager[Lease]:
        """Load ``model`` if needed, wait for a turn in its queue, and hold it while the context is open.

        ``embedding`` asks for the model in a form that gives embeddings, which may be a second one beside the first.

        Raises:
            ModelNotFound, LoadFailed, Quarantined, DoesNotFit: the model cannot be had.
            QueueFull: too many requests wait for it already.
            ShuttingDown: the service takes no new work.
        """
        ...
