"""One model of the manager: its phase, its queue, its instance's life and end, and what the app shows of it.

No decisions about other models are made here (room, eviction, engine choice): ``service/manager.py`` does that.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from localllm.core.control import InstancePhase, InstanceState, LoadRequest, RequestPhase
from localllm.core.errors import (
    Cancelled,
    EngineCrashed,
    EngineStalled,
    LocalLLMError,
    OutOfMemory,
    UnknownArchitecture,
)
from localllm.core.generation import Tier
from localllm.engines.backoff import Backoff
from localllm.engines.base import Capability, Exit, Instance, InstanceStats, LoadProgress
from localllm.hub.store import StoredModel
from localllm.service.admission import AdmissionQueue, Ticket
from localllm.service.background import Background
from localllm.service.lease import OnWaiting, Waiting
from localllm.service.ledger import Ledger
from localllm.service.planning import Planned
from localllm.service.states import Slot

log = logging.getLogger(__name__)

FileIdentity = tuple[int, int, int, int]


def file_identity(path: str | Path) -> FileIdentity | None:
    """What tells one content of a file from another: device, inode, size, mtime (ns). None = no such file."""
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


@dataclass(frozen=True, slots=True)
class Admitted:
    """A turn that has come: the instance to use, and the load it belongs to."""

    instance: Instance
    generation: int


@dataclass(eq=False)
class Resident:
    """Mutable, and touched only by the event loop. Times are monotonic seconds unless the name ends in ``_at``."""

    model: StoredModel
    queue: AdmissionQueue
    ledger: Ledger
    background: Background
    on_change: Callable[[], None]
    on_move: Callable[[Resident], None]
    keep_alive_s: float | None
    embedding: bool = False
    slot: Slot = field(default_factory=Slot)
    backoff: Backoff = field(default_factory=Backoff)
    instance: Instance | None = None
    engine: str | None = None
    engine_reason: str | None = None
    request: LoadRequest | None = None
    planned: Planned | None = None
    identity: FileIdentity | None = None
    loading: asyncio.Task[None] | None = None
    progress: LoadProgress | None = None
    pinned: bool = False
    last_used: float = field(default_factory=time.monotonic)
    last_used_at: float | None = None
    loaded_at: float | None = None
    error: LocalLLMError | None = None
    stats: InstanceStats | None = None
    listeners: list[OnWaiting] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    _expiry: asyncio.TimerHandle | None = None
    _turns: dict[Ticket, asyncio.Future[Admitted | None]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def key(self) -> str:
        """Its name in the books; a model that answers and one that embeds are two places."""
        return f"{self.name} (embeddings)" if self.embedding else self.name

    def gives_embeddings(self) -> bool:
        if self.instance is not None:
            return Capability.EMBEDDING in self.instance.info.capabilities
        return self.embedding or self.model.capabilities == ("embedding",)

    @property
    def in_use(self) -> bool:
        return self.slot.running > 0 or self.queue.waiting > 0

    def move(self, slot: Slot) -> None:
        """Enter the phase that a transition of ``Slot`` gave, and tell who waits for it."""
        self.slot = slot
        (self.gone.set if slot.phase in _NOT_LOADED else self.gone.clear)()
        (self.idle.set if slot.running == 0 else self.idle.clear)()
        self.on_move(self)
        self.on_change()

    def report(self, progress: LoadProgress) -> None:
        """Hand a load's progress to every request that waits for it."""
        self.progress = progress
        waiting = self.waiting_for_load()
        for listener in tuple(self.listeners):
            listener(waiting)
        self.on_change()

    def why_not_loaded(self) -> LocalLLMError | None:
        """The error of the load that has just ended; None when it went well.

        Also None when the model was evicted since, or is loading once more: a turn will come, or be called off.
        """
        return None if self.slot.serving or self.loading is not None else self.error

    def waiting_for_load(self) -> Waiting:
        """Where the load that is under way stands."""
        stage, fraction = (self.progress.stage, self.progress.fraction) if self.progress else (None, None)
        return Waiting(phase=RequestPhase.LOADING, stage=stage, fraction=fraction)

    # ------------------------------------------------------------ turns

    def enter(self, tier: Tier) -> Ticket:
        """Join the queue. Raises QueueFull. Every ticket is given back with ``leave``."""
        ticket = self.queue.enter(tier, time.monotonic())
        self._turns[ticket] = asyncio.get_running_loop().create_future()
        return ticket

    async def turn(self, ticket: Ticket, on_waiting: OnWaiting | None) -> Instance | None:
        """Wait to be admitted; None when the instance went away first and must be loaded again."""
        self.pump()
        future = self._turns[ticket]
        if not future.done() and on_waiting is not None:
            position = self.queue.position(ticket, time.monotonic())
            on_waiting(Waiting(phase=RequestPhase.QUEUED, position=position))
        admitted = await future
        return admitted.instance if admitted is not None else None

    def leave(self, ticket: Ticket, *, answered_after_s: float | None = None) -> None:
        """Give back a place, waiting or running; ``answered_after_s`` = the request ran to its end and took so long."""
        future = self._turns.pop(ticket)
        admitted = future.result() if future.done() and not future.cancelled() else None
        self.queue.leave(ticket, served_s=answered_after_s)
        if admitted is not None:
            self.move(self.slot.release(admitted.generation, answered=answered_after_s is not None))
            self.last_used, self.last_used_at = time.monotonic(), time.time()
        self.pump()

    def pump(self) -> None:
        """Admit whoever has a place now; called whenever a place may have become free."""
        if not self.slot.serving or self.instance is None or self.instance.exited.done():
            return  # one that has just died is seen to by `_instance_exited`, a moment later
        for ticket in self.queue.admit(time.monotonic()):
            future = self._turns[ticket]
            if not future.done():  # a cancelled waiter leaves by itself and gives the place on
                self.move(self.slot.acquire())
                future.set_result(Admitted(self.instance, self.slot.generation))

    def _call_off_turns(self) -> None:
        """Tell whoever waits for a turn that none will come from here, and let them wait for one of the next load."""
        for ticket, future in self._turns.items():
            if not future.done():
                self._turns[ticket] = asyncio.get_running_loop().create_future()
                future.set_result(None)

    def _open_queue(self, instance: Instance) -> None:
        """Let as many run as the instance takes; one that schedules tiers itself gets all that may wait, too."""
        schedules = Capability.PRIORITY in instance.info.capabilities
        self.queue.capacity = instance.info.parallel + (self.queue.limit if schedules else 0)
        self.pump()

    # ------------------------------------------------------------ the instance's life

    def adopt(self, instance: Instance) -> None:
        """A load has succeeded: serve with ``instance``."""
        self.instance, self.progress, self.loading, self.error = instance, None, None, None
        self.loaded_at = self.last_used_at = time.time()
        self.last_used = time.monotonic()
        self.move(self.slot.loaded())
        self.ledger.settle(self.key)
        instance.exited.add_done_callback(partial(self._instance_exited, instance))
        self._open_queue(instance)
        self.expect_expiry()

    def load_failed(self, error: LocalLLMError) -> None:
        """A load has ended without an instance: remember why, and whether the engine died of it."""
        crashed = _is_crash(error)
        self.error, self.progress, self.loading = error, None, None
        self.ledger.release(self.key)
        if crashed:
            self.backoff.crashed(time.monotonic())
        self.move(self.slot.load_failed(crashed=crashed))
        self._call_off_turns()
        if not isinstance(error, Cancelled):
            log.warning("load failed", extra={"model": self.name, "code": error.code})

    async def cancel_load(self) -> None:
        """End a load that is under way, and the process it started."""
        task = self.loading
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
            if self.loading is task:  # cancelled before it ran its first line
                self.load_failed(Cancelled(f"The load of {self.name!r} was cancelled."))

    async def unload(self, *, drain_s: float | None) -> None:
        """Drain and stop the instance; ``drain_s`` None waits for as long as its requests take."""
        if self.slot.serving:
            self.move(self.slot.drain())
            self.queue.capacity = 0
            try:
                async with asyncio.timeout(drain_s):
                    await self.idle.wait()
            except TimeoutError:
                log.warning("requests cut off by an unload", extra={"model": self.name})
            if self.slot.phase is InstancePhase.DRAINING:
                self.move(self.slot.unload())
                # its own task: whoever gives up waiting must not leave a half-stopped engine behind
                self.background.spawn(self._stop(), name=f"stop {self.name}")
        if self.slot.phase in (InstancePhase.DRAINING, InstancePhase.UNLOADING):
            await self.gone.wait()

    async def _stop(self) -> None:
        assert self.instance is not None
        try:
            await self.instance.unload()
        finally:
            self._lose_instance(self.slot.unloaded())

    def kill(self, error: EngineStalled) -> None:
        """The engine said nothing for too long: end it, so that the next request starts a fresh one."""
        instance = self.instance
        if instance is None or not self.slot.serving:
            return
        log.error("engine stalled", extra={"model": self.name})
        self._crashed(error)
        self.background.spawn(instance.unload(), name=f"end the stalled engine of {self.name}")

    def _instance_exited(self, instance: Instance, exited: asyncio.Future[Exit]) -> None:
        if self.instance is not instance or exited.cancelled():
            return
        end = exited.result()
        if self.slot.phase is InstancePhase.UNLOADING:
            return  # asked for: `_stop` sees to the rest
        log.error(
            "engine crashed", extra={"model": self.name, "exit_code": end.exit_code, "cause": end.cause}
        )
        figures: dict[str, object] = {"exit_code": end.exit_code, "stderr_tail": end.stderr_tail[-2048:]}
        self._crashed(EngineCrashed(end.cause, details=figures))

    def _crashed(self, error: LocalLLMError) -> None:
        self.error = error
        self.backoff.crashed(time.monotonic())
        self._lose_instance(self.slot.crash())

    def _lose_instance(self, slot: Slot) -> None:
        """The instance is gone; whoever waits for a turn has to see to a new one."""
        self.cancel_expiry()
        self.instance = self.planned = self.stats = self.loaded_at = None
        self.ledger.release(self.key)
        self.queue.capacity = 0
        self.move(slot)
        self._call_off_turns()

    def forget(self) -> None:
        """Clear away a crash and its history; the model may be loaded again at once."""
        self.error = None
        self.backoff.reset()
        self.move(self.slot.forget())

    # ------------------------------------------------------------ keep-alive

    def expect_expiry(self) -> None:
        """Unload when idle for the keep-alive time: 0 means as soon as nothing runs, None never."""
        self.cancel_expiry()
        if self.keep_alive_s is None or self.pinned or self.in_use or not self.slot.serving:
            return
        self._expiry = asyncio.get_running_loop().call_later(self.keep_alive_s, self._expire)

    def cancel_expiry(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    def _expire(self) -> None:
        self._expiry = None
        if self.slot.evictable and not self.in_use and not self.pinned and self.background.open:
            log.info("unloading an idle model", extra={"model": self.name})
            self.background.spawn(self.unload(drain_s=None), name=f"unload {self.name}")

    # ------------------------------------------------------------ what the app shows

    def state(self, tokens_per_second: float | None = None) -> InstanceState | None:
        """None while there is nothing to show: not loaded, and no failure to tell of."""
        phase = self.slot.phase
        if phase is None:
            return None
        info = self.instance.info if self.instance else None
        planned, stats = self.planned, self.stats
        loading = phase is InstancePhase.LOADING
        return InstanceState(
            model=self.name,
            engine=self.engine or "",
            phase=phase,
            progress=self.progress.fraction if loading and self.progress else None,
            stage=self.progress.stage if loading and self.progress else None,
            context_length=info.context_length if info else None,
            parallel=info.parallel if info else None,
            running=self.slot.running,
            waiting=self.queue.waiting,
            waiting_by_tier=stats.waiting_by_tier if stats else {},
            engine_counters=_counters(stats) if stats else {},
            kv_used_tokens=stats.kv_used_tokens if stats else None,
            kv_total_tokens=stats.kv_total_tokens if stats else None,
            tokens_per_second=tokens_per_second,
            planned_bytes=planned.total_bytes if planned else None,
            measured_bytes=self._measured_bytes(),
            gpu_layers=info.gpu_layers if info else None,
            total_layers=info.total_layers if info else None,
            pinned=self.pinned,
            loaded_at=self.loaded_at,
            last_used_at=self.last_used_at,
            pid=info.pid if info else None,
            reason=self._reason(),
            warnings=self.warnings(),
            error_code=self.error.code if self.error else None,
            error=self.error.message if self.error else None,
        )

    def warnings(self) -> tuple[str, ...]:
        """What planner and engine had to say against the way the model is loaded."""
        planned = self.planned.warnings if self.planned and self.instance else ()
        return (*planned, *(self.instance.info.warnings if self.instance else ()))

    def _measured_bytes(self) -> int | None:
        """What the engine's process holds; the buffers that it said it made, where some of them are on a GPU."""
        if self.instance is None:
            return None
        info, stats = self.instance.info, self.stats
        if stats is not None and stats.resident_bytes is not None and not info.gpu_layers:
            return stats.resident_bytes
        return sum(buffer.bytes for buffer in info.buffers) or None

    def _reason(self) -> str | None:
        """Why this engine, and what the planner thought."""
        parts = [self.engine_reason, "for embeddings" if self.embedding else None]
        parts.append(self.planned.reason if self.planned else None)
        return "; ".join(part for part in parts if part) or None


_NOT_LOADED = (None, InstancePhase.CRASHED, InstancePhase.QUARANTINED)


def _is_crash(error: LocalLLMError) -> bool:
    """Whether the engine's process died of the load, rather than said no to it."""
    if isinstance(error, OutOfMemory | UnknownArchitecture):
        return False
    exit_code = error.details.get("exit_code")
    return isinstance(error, EngineCrashed) or (isinstance(exit_code, int) and exit_code < 0)


_COUNTED = (
    *("steps_total", "prefilled_tokens_total", "decoded_rows_total", "preemptions_total"),
    *("step_seconds_total", "model_seconds_total", "sampling_seconds_total"),
)


def _counters(stats: InstanceStats) -> dict[str, float]:
    """What the engine counted inside, by name; what it cannot tell is left out."""
    return {name: value for name in _COUNTED if (value := getattr(stats, name)) is not None}
