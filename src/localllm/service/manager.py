"""Which models are loaded: on demand, within the memory there is, restarted when they crash, unloaded when idle.

Decisions are pure logic elsewhere (``states``, ``admission``, ``ledger``, ``engines/backoff``); this module gives them a
clock and engines. Room in memory is made by ``room``; the life of one instance is in ``resident``.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Protocol

from msgspec.structs import replace

from localllm.core.control import InstancePhase, InstanceState, LoadRequest
from localllm.core.errors import (
    Cancelled,
    EngineCrashed,
    EngineStalled,
    LoadFailed,
    LocalLLMError,
    ModelChanged,
    ModelInUse,
    ModelNotFound,
    NotFound,
    OutOfMemory,
    Quarantined,
    ShuttingDown,
    from_code,
)
from localllm.core.generation import Tier
from localllm.engines.base import Engine, Instance, InstanceInfo, LoadProgress
from localllm.hub.store import StoredModel
from localllm.service.admission import AdmissionQueue
from localllm.service.background import Background
from localllm.service.engine_choice import choose_engine
from localllm.service.lease import Lease, OnWaiting
from localllm.service.ledger import Ledger
from localllm.service.notices import Notices
from localllm.service.planning import Planned, Planning
from localllm.service.resident import Resident, file_identity
from localllm.service.room import Room, Strangers

log = logging.getLogger(__name__)

DRAIN_S = 30.0
_RETRY_CONTEXT_LENGTH = 2048
_CHECK_FILE_EVERY_S = 1.0


class ModelSource(Protocol):
    """Where models come from: the store."""

    def get(self, name: str) -> StoredModel: ...

    def list(self) -> tuple[StoredModel, ...]: ...


class Manager:
    """The owner of every loaded model. All methods belong to the event loop that made it."""

    def __init__(
        self,
        *,
        source: ModelSource,
        engines: Mapping[str, Engine],
        planning: Planning,
        background: Background,
        ledger: Ledger | None = None,
        configured_engine: str = "auto",
        default_model: str | None = None,
        queue_limit: int = 32,
        keep_alive_s: float | None = 1800.0,
        max_loaded: int = 4,
        strangers: Strangers | None = None,
        notices: Notices | None = None,
        on_change: Callable[[], None] = lambda: None,
        on_loaded: Callable[[Planned, InstanceInfo], object] = lambda planned, info: None,
    ) -> None:
        """``on_loaded`` hears of each load that went well: its plan, and what the engine made of it."""
        self.source = source
        self.engines = engines
        self.planning = planning
        self.ledger = ledger or Ledger()
        self.on_change = on_change
        self._on_loaded = on_loaded
        self.default_model = default_model
        self._notices = notices or Notices()
        self._background = background
        self._configured_engine = configured_engine
        self._queue_limit = queue_limit
        self._keep_alive_s = keep_alive_s
        self.check_files_every_s = _CHECK_FILE_EVERY_S
        self._residents: dict[str, Resident] = {}
        self.room = Room(
            self._residents.values, planning, self.ledger, max_loaded=max_loaded, strangers=strangers
        )
        self._closing = False

    # ------------------------------------------------------------ what is there

    def resolve(self, name: str) -> StoredModel:
        """The stored model that ``name`` means; "" means the default one, else one that is loaded, else the newest.

        Raises:
            ModelNotFound: with near names.
        """
        return self.source.get(name or self._unnamed())

    def states(self, rate: Callable[[str], float | None] = lambda model: None) -> tuple[InstanceState, ...]:
        """What the app shows of every model that is loaded, loading, crashed or quarantined."""
        shown = (resident.state(rate(resident.name)) for resident in self._residents.values())
        return tuple(state for state in shown if state is not None)

    def state(self, name: str) -> InstanceState | None:
        resident = self._residents.get(name)
        return resident.state() if resident else None

    def serving(self) -> tuple[Resident, ...]:
        return tuple(r for r in self._residents.values() if r.slot.serving)

    def loaded(self) -> frozenset[str]:
        """Names of the models that have an instance."""
        return frozenset(r.name for r in self._residents.values() if r.instance is not None)

    def is_loaded(self, name: str) -> bool:
        return any(r.instance is not None for r in self._of(name))

    async def healthy(self, *, within_s: float = 5.0) -> tuple[str, ...]:
        """Names of the loaded models that answer a ping now: what ``/ready`` asks."""

        serving = [(r.name, r.instance) for r in self.serving() if r.instance is not None]
        answered = await asyncio.gather(*(_answers(instance, within_s) for _, instance in serving))
        return tuple(name for (name, _), well in zip(serving, answered, strict=True) if well)

    async def end_unresponsive(self) -> None:
        """Ping every idle model and end those that do not answer, so that the next request gets a fresh one."""
        idle = [r for r in self.serving() if not r.in_use]
        for resident in idle:
            if (
                resident.instance is not None
                and not await _answers(resident.instance)
                and not resident.in_use
            ):
                resident.kill(EngineStalled(f"The engine of {resident.name!r} no longer answers."))

    # ------------------------------------------------------------ a place for one request

    @asynccontextmanager
    async def lease(
        self,
        model: str,
        *,
        tier: Tier = Tier.DEFAULT,
        embedding: bool = False,
        on_waiting: OnWaiting | None = None,
    ) -> AsyncIterator[Lease]:
        """See ``lease.Leasing``: loads on demand, waits in the model's queue, holds a place while open."""
        self._refuse_when_closing()
        resident = self._resident(self.resolve(model), embedding=embedding)
        began = time.monotonic()
        ticket = resident.enter(tier)
        resident.cancel_expiry()
        answered_after_s: float | None = None
        instance: Instance | None = None
        try:
            await self._reload_if_changed(resident)
            while instance is None:
                await self._loaded(resident, LoadRequest(model=resident.name), on_waiting)
                instance = await resident.turn(ticket, on_waiting)
            admitted = time.monotonic()
            yield Lease(
                model=resident.name,
                instance=instance,
                info=instance.info,
                queue_ms=(admitted - began) * 1000,
                sampling=resident.model.sampling,
            )
            answered_after_s = time.monotonic() - admitted
        except EngineStalled as error:
            if instance is not None and resident.instance is instance:
                resident.kill(error)
            raise
        finally:
            resident.leave(ticket, answered_after_s=answered_after_s)
            resident.expect_expiry()

    # ------------------------------------------------------------ load and unload

    async def load(
        self, request: LoadRequest, on_progress: Callable[[LoadProgress], None] | None = None
    ) -> InstanceState:
        """Load a model as asked; one that is loaded already stays, unless the request asks for another form of it.

        Raises:
            ModelNotFound, GGUFError, DoesNotFit, EngineUnavailable, LoadFailed, Quarantined.
        """
        self._refuse_when_closing()
        resident = self._resident(self.resolve(request.model))
        request = replace(request, model=resident.name)
        if resident.slot.serving and _asks_for_another_form(request, resident):
            await self.unload(resident.name)
        resident.pinned = request.pin or resident.pinned
        if request.keep_alive_seconds is not None:
            resident.keep_alive_s = request.keep_alive_seconds if request.keep_alive_seconds >= 0 else None

        def report(waiting: object) -> None:
            if on_progress is not None and resident.progress is not None:
                on_progress(resident.progress)

        await self._loaded(resident, request, report)
        resident.last_used = time.monotonic()
        resident.expect_expiry()
        return resident.state() or InstanceState(
            model=resident.name, engine=resident.engine or "", phase=InstancePhase.UNLOADING, reason="evicted"
        )

    async def unload(self, name: str, *, force: bool = False) -> InstanceState:
        """Unload a model: what runs may end within ``DRAIN_S`` seconds, or is cut off at once with ``force``.

        Raises:
            ModelNotFound: there is no model of that name.
            NotFound: it is not loaded.
        """
        name = self.resolve(name).name
        places = self._of(name)
        if not places:
            raise NotFound(f"{name!r} is not loaded.", hint="See what is: localllm ps", param="model")
        for resident in places:
            if resident.loading is not None:
                await resident.cancel_load()
            elif resident.slot.phase in (InstancePhase.CRASHED, InstancePhase.QUARANTINED):
                resident.forget()
            else:
                await resident.unload(drain_s=0.0 if force else DRAIN_S)
            resident.pinned = False
        return InstanceState(
            model=name, engine=places[0].engine or "", phase=InstancePhase.UNLOADING, reason="unloaded"
        )

    def refuse_removal(self, name: str) -> None:
        """Raise ``ModelInUse`` when the model is loaded, so that its file is not pulled from under it."""
        if self.is_loaded(name):
            raise ModelInUse(
                f"{name!r} is loaded.",
                hint=f"Unload it first (localllm unload {name}), or remove it with --force.",
                param="model",
            )

    async def close(self, *, drain_s: float = 0.0) -> None:
        """Take no new work, let what runs end within ``drain_s``, and unload everything."""
        self._closing = True
        await asyncio.gather(*(r.cancel_load() for r in self._residents.values()))
        loaded = [r for r in self._residents.values() if r.instance is not None]
        await asyncio.gather(*(r.unload(drain_s=drain_s) for r in loaded))

    def stop_admitting(self) -> None:
        """New requests get ``ShuttingDown`` from now on; those that run go on."""
        self._closing = True

    # ------------------------------------------------------------ loading

    async def _loaded(self, resident: Resident, request: LoadRequest, on_waiting: OnWaiting | None) -> None:
        """Return when a load has succeeded; join one that is under way, else start one."""
        if resident.slot.phase in (InstancePhase.DRAINING, InstancePhase.UNLOADING):
            await resident.gone.wait()
        if resident.slot.serving:
            return
        if on_waiting is not None:
            resident.listeners.append(on_waiting)
        try:
            if resident.loading is None:
                self._start_load(resident, request)
            elif on_waiting is not None and resident.progress is not None:
                on_waiting(resident.waiting_for_load())
            assert resident.loading is not None
            # `wait` does not pass a cancellation on: a client that leaves must not end the load others wait for
            await asyncio.wait({resident.loading})
        finally:
            if on_waiting is not None:
                resident.listeners.remove(on_waiting)
        error = resident.why_not_loaded()
        if error is not None:
            raise error

    def _start_load(self, resident: Resident, request: LoadRequest) -> None:
        self._refuse_when_closing()
        resident.model = self.source.get(resident.name)
        identity = file_identity(resident.model.path)
        slot = resident.slot
        if identity != resident.identity and slot.phase is InstancePhase.QUARANTINED:
            slot = slot.forget()  # another file under that name is tried afresh
        if slot.phase is InstancePhase.QUARANTINED and not request.force:
            raise Quarantined(
                f"Loading {resident.name!r} crashed the engine twice; it is not tried again by itself.",
                hint=f"Try once more with: localllm load {resident.name} --force",
                param="model",
            )
        if request.force:
            resident.backoff.reset()
        now = time.monotonic()
        if resident.backoff.given_up(now):
            raise EngineCrashed(
                f"The engine of {resident.name!r} crashed too often in a short time; it is left alone for now.",
                hint=f"See why with: localllm logs. Try at once with: localllm load {resident.name} --force",
                details={"retry_after_s": resident.backoff.wait_s(now)},
            )
        resident.identity, resident.error, resident.request = identity, None, request
        resident.move(slot.load(force=request.force))
        resident.loading = self._background.spawn(self._load(resident, request), name=f"load {resident.name}")

    async def _load(self, resident: Resident, request: LoadRequest) -> None:
        """One load from plan to ready. Failures end in ``resident.error``, which those who wait then raise."""
        began = time.monotonic()
        try:
            await self._wait_out_backoff(resident)
            instance = await self._load_once(resident, request)
        except asyncio.CancelledError:
            resident.load_failed(Cancelled(f"The load of {resident.name!r} was cancelled."))
        except LocalLLMError as error:
            resident.load_failed(error)
        except Exception as error:
            log.exception("load failed", extra={"model": resident.name})
            resident.load_failed(LoadFailed(f"Loading {resident.name!r} failed inside localllm: {error!r}."))
        else:
            resident.adopt(instance)
            if resident.planned is not None:
                self._on_loaded(resident.planned, instance.info)
            log.info(
                "model loaded",
                extra={
                    "model": resident.name,
                    "engine": resident.engine,
                    "load_ms": (time.monotonic() - began) * 1000,
                },
            )

    async def _wait_out_backoff(self, resident: Resident) -> None:
        pause = resident.backoff.wait_s(time.monotonic())
        if pause > 0:
            resident.report(LoadProgress("waiting to restart"))
            await asyncio.sleep(pause)

    async def _load_once(self, resident: Resident, request: LoadRequest) -> Instance:
        engine, resident.engine_reason = await choose_engine(
            self.engines,
            asked=request.engine,
            configured=self._configured_engine,
            model=resident.model,
        )
        resident.engine = engine.name
        resident.report(LoadProgress("planning"))
        wish = replace(request, engine=engine.name)
        resident.planned = planned = await self.room.reserve(resident, wish)
        try:
            return await engine.load(planned.launch, resident.report)
        except OutOfMemory:
            smaller = planned.launch.context_length // 2
            if request.context_length is not None or smaller < _RETRY_CONTEXT_LENGTH:
                raise
            log.warning("out of memory, one retry with less context", extra={"model": resident.name})
            self.ledger.release(resident.key)
            resident.planned = planned = await self.room.reserve(
                resident, replace(wish, context_length=smaller)
            )
            return await engine.load(planned.launch, resident.report)

    async def _reload_if_changed(self, resident: Resident) -> None:
        """A file that is not the one that was loaded is loaded anew; one that is gone is an error."""
        if not resident.slot.serving or resident.slot.running > 0:
            return
        if time.monotonic() - resident.last_used < self.check_files_every_s:
            return
        found = file_identity(resident.model.path)
        if found == resident.identity:
            return
        if found is None:
            raise ModelChanged(
                f"The file of {resident.name!r} is gone from {resident.model.path}.",
                hint="Put it back, or import the model again.",
                param="model",
            )
        log.warning("model file changed, loading it anew", extra={"model": resident.name})
        await resident.unload(drain_s=DRAIN_S)

    # ------------------------------------------------------------ small things

    def _resident(self, model: StoredModel, *, embedding: bool = False) -> Resident:
        """The model's place; a second one for embeddings, when it answers in a form that cannot give them."""
        resident = self._residents.get(model.name)
        if resident is None:
            resident = self._residents[model.name] = self._new_resident(model)
        if not embedding or resident.gives_embeddings():
            return resident
        key = f"{model.name} (embeddings)"
        if key not in self._residents:
            self._residents[key] = self._new_resident(model, embedding=True)
        return self._residents[key]

    def _new_resident(self, model: StoredModel, *, embedding: bool = False) -> Resident:
        resident = Resident(
            model=model,
            embedding=embedding,
            queue=AdmissionQueue(limit=self._queue_limit),
            ledger=self.ledger,
            background=self._background,
            on_change=self.on_change,
            on_move=self._moved,
            keep_alive_s=self._keep_alive_s,
        )
        resident.move(resident.slot)
        return resident

    def _moved(self, resident: Resident) -> None:
        """A model has entered another phase: whoever waits for room looks again, and a crash is shown or over."""
        self.room.moved()
        phase, code = resident.slot.phase, f"engine_crashed {resident.key}"
        if phase in (InstancePhase.CRASHED, InstancePhase.QUARANTINED) and resident.error is not None:
            self._notices.show(code, "error", f"{resident.name}: {resident.error.message}")
        elif phase in (None, InstancePhase.READY):
            self._notices.clear(code)
        code = f"load_warning {resident.key}"
        warnings = resident.warnings()
        if warnings:
            self._notices.show(code, "warning", f"{resident.name}: {' '.join(warnings)}")
        else:
            self._notices.clear(code)

    def _of(self, name: str) -> tuple[Resident, ...]:
        """Every place of one model that is not empty."""
        return tuple(r for r in self._residents.values() if r.name == name and r.slot.phase is not None)

    def _unnamed(self) -> str:
        """The model that is meant when none is named: the default, else the one used last, else the newest."""
        if self.default_model:
            return self.default_model
        serving = sorted(self.serving(), key=lambda r: r.last_used)
        if serving:
            return serving[-1].name
        models = self.source.list()
        if models:
            return max(models, key=lambda model: model.added_at).name
        raise from_code(
            ModelNotFound.code, "No model is here yet.", hint="Import one: localllm import FILE.gguf"
        )

    def _refuse_when_closing(self) -> None:
        if self._closing:
            raise ShuttingDown("The service is stopping.", hint="Try again when it has restarted.")


async def _answers(instance: Instance, within_s: float = 5.0) -> bool:
    try:
        async with asyncio.timeout(within_s):
            await instance.ping()
    except (LocalLLMError, TimeoutError):
        return False
    return True


def _asks_for_another_form(request: LoadRequest, resident: Resident) -> bool:
    """Whether a field of the request is neither what is loaded nor what that load was asked for.

    The two differ where a wish was rounded or capped (a context is padded): asking for it again changes nothing.
    """
    assert resident.instance is not None
    info, before = resident.instance.info, resident.request or LoadRequest(model=resident.name)
    launch = resident.planned.launch if resident.planned else None
    wishes = [
        (request.engine, info.engine, before.engine),
        (request.context_length, info.context_length, before.context_length),
        (request.parallel, info.parallel, before.parallel),
        (request.kv_type, launch.kv_type_k if launch else None, before.kv_type),
        (request.gpu_layers, launch.gpu_layers if launch else None, before.gpu_layers),
        (request.threads, launch.threads if launch else None, before.threads),
        (request.profile, before.profile, before.profile),
    ]
    return any(wish is not None and wish not in (present, asked) for wish, present, asked in wishes)
