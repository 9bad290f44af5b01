"""Pulls as the service runs them: they belong to no terminal, go on after a restart, and can be paused at any time.

The bytes are the business of ``hub.pull_job``; here is which pulls there are, which of them run, and what people see.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from localllm.core.config import DownloadSettings
from localllm.core.control import (
    PullRequest,
    Task,
    TaskPhase,
)
from localllm.core.errors import (
    DiskFull,
    DownloadFailed,
    GGUFError,
    LocalLLMError,
    NotFound,
    Offline,
    RateLimited,
)
from localllm.hub.curated import Curated
from localllm.hub.download.throttle import Throttle
from localllm.hub.download.wire import new_client
from localllm.hub.pull_job import Job, JobProgress, Workshop, key_of, require_room, sweep
from localllm.hub.pull_plan import Sources
from localllm.hub.sources.base import Access
from localllm.hub.store import Store
from localllm.service.background import Background
from localllm.service.download_queue import Queued, QueueFile
from localllm.service.machine import MachineReadings
from localllm.service.prospects import Prospects
from localllm.service.rate import Rate
from localllm.service.tasks import Tasks

RETRY_AFTER_S = (15.0, 30.0, 60.0, 120.0, 300.0)
"""Pauses after which a pull whose line is dead is tried again; the last one for ever."""
_THREADS = 8


@dataclass
class _Pull:
    """One pull. ``task`` None while it is paused."""

    queued: Queued
    shown: Task
    job: Job
    rate: Rate = field(default_factory=Rate)
    task: asyncio.Task[None] | None = None


class Downloads:
    """Made by ``open_downloads``. Everything runs in the event loop; what blocks goes to threads."""

    def __init__(
        self,
        *,
        workshop: Workshop,
        prospects: Prospects,
        queue: QueueFile,
        tasks: Tasks,
        background: Background,
        on_store_change: Callable[[], None],
        at_once: int,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.prospects = prospects
        self._shop = workshop
        self._queue = queue
        self._tasks = tasks
        self._background = background
        self._on_store_change = on_store_change
        self._slots = asyncio.Semaphore(at_once)
        self._sleep = sleep
        self._pulls: dict[str, _Pull] = {}
        self._starting = asyncio.Lock()

    async def resume_all(self) -> None:
        """Go on with what was not done when the service ended."""
        for queued in await self._queue.read():
            pull = self._add(queued)
            if not queued.paused:
                self._run(pull)

    async def close(self) -> None:
        """Stop every transfer; what is here is kept, and the list still names it."""
        running = [pull.task for pull in self._pulls.values() if pull.task is not None]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    # ------------------------------------------------------------ acting

    async def start(self, request: PullRequest) -> Task:
        """Begin a pull, or go on with the one that there is of this model.

        Raises:
            DiskFull: it does not fit beside what the other pulls still need; nothing was begun.
            GGUFError: only Ollama can run it.
            Conflict, NotFound, Gated, Offline, …: as ``prepare``.
        """
        prospect = await self.prospects.get(request)
        plan = prospect.plan
        if prospect.foreign:
            raise GGUFError(
                f"{plan.name} cannot run in localllm's own engines: {prospect.foreign}.",
                hint="Pull it with Ollama (ollama pull); localllm lists it then and runs it through Ollama.",
            )
        async with self._starting:
            for pull in self._pulls.values():
                if pull.queued.plan.name == plan.name:
                    return await self._resume(pull)
            await self._require_room(Job(self._shop, plan, _ignore))
            pull = self._add(Queued(id=secrets.token_hex(8), plan=plan))
            self._run(pull)
            await self._remember()
        return pull.shown

    async def pause(self, pull_id: str) -> Task:
        """Stop fetching and keep what is here. Raises NotFound when there is no such pull."""
        pull = self._find(pull_id)
        await self._stop(pull)
        if pull_id in self._pulls:
            self._set_paused(pull, paused=True)
            self._show(pull, phase=TaskPhase.PAUSED, stage="paused")
            await self._remember()
        return pull.shown

    async def resume(self, pull_id: str) -> Task:
        """Go on. Raises NotFound when there is no such pull, DiskFull when there is no room for the rest."""
        return await self._resume(self._find(pull_id))

    async def cancel(self, pull_id: str) -> Task:
        """Stop, and delete what was fetched unless another pull needs it. Raises NotFound."""
        pull = self._find(pull_id)
        await self._stop(pull)
        if self._pulls.pop(pull_id, None) is not None:
            wanted = [file for other in self._pulls.values() for file in other.queued.plan.all_files]
            await asyncio.to_thread(pull.job.discard, but=wanted)
            self._show(pull, phase=TaskPhase.CANCELLED, stage=None)
            await self._remember()
        return pull.shown

    async def collect(self) -> int:
        """Delete what no pull needs any more: parts of failed and forgotten ones. The bytes that this freed."""
        kept = {key_of(file) for pull in self._pulls.values() for file in pull.queued.plan.all_files}
        return await asyncio.to_thread(sweep, self._shop.folder, kept)

    def limit(self, bytes_per_second: int | None) -> None:
        """Hold all downloads together to so many bytes a second, from now on."""
        self._shop.throttle.bytes_per_second = bytes_per_second

    # ------------------------------------------------------------ how

    async def _resume(self, pull: _Pull) -> Task:
        if pull.task is None:
            await self._require_room(pull.job)
            self._set_paused(pull, paused=False)
            self._run(pull)
            await self._remember()
        return pull.shown

    async def _require_room(self, job: Job) -> None:
        """Raise DiskFull unless the disk can take what ``job`` lacks beside what the running pulls still need."""
        jobs = [pull.job for pull in self._pulls.values() if pull.task is not None and pull.job is not job]

        def look() -> None:
            others = sum(other.missing_bytes() for other in jobs)
            require_room(self._shop.store.root, job.missing_bytes(), others)

        await asyncio.to_thread(look)

    def _add(self, queued: Queued) -> _Pull:
        plan = queued.plan
        shown = Task(
            id=queued.id,
            kind="pull",
            title=plan.name,
            phase=TaskPhase.PAUSED if queued.paused else TaskPhase.WAITING,
            total=plan.size_bytes,
        )
        pull = _Pull(queued, shown, Job(self._shop, plan, lambda progress: self._on_progress(pull, progress)))
        self._pulls[queued.id] = pull
        self._tasks.show(shown)
        return pull

    def _run(self, pull: _Pull) -> None:
        pull.rate = Rate()
        self._show(pull, phase=TaskPhase.WAITING, stage="waiting for its turn", error=None, error_code=None)
        pull.task = self._background.spawn(self._work(pull), name=f"pull {pull.shown.title}")

    async def _work(self, pull: _Pull) -> None:
        tries = 0
        try:
            while True:
                try:
                    async with self._slots:
                        self._show(pull, phase=TaskPhase.RUNNING, stage="looking at what is here")
                        model = await pull.job.run()
                    break
                except (Offline, DownloadFailed, RateLimited) as error:
                    pause = RETRY_AFTER_S[min(tries, len(RETRY_AFTER_S) - 1)]
                    tries += 1
                    note = f"trying again in {pause:.0f} s: {error.message}"
                    self._show(pull, phase=TaskPhase.WAITING, stage=note)
                    await self._sleep(pause)
        except DiskFull as error:
            pull.task = None
            self._set_paused(pull, paused=True)
            self._show(pull, phase=TaskPhase.PAUSED, stage="the disk is full", **_words(error))
            await self._remember()
        except LocalLLMError as error:
            await self._end(pull, phase=TaskPhase.FAILED, stage=None, **_words(error))
        else:
            self._on_store_change()
            await self._end(
                pull, phase=TaskPhase.DONE, stage=None, result=model.name, done=pull.shown.total or 0
            )

    async def _end(self, pull: _Pull, **changes: object) -> None:
        pull.task = None
        self._pulls.pop(pull.queued.id, None)
        self._show(pull, **changes)
        await self._remember()

    async def _stop(self, pull: _Pull) -> None:
        task, pull.task = pull.task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def _on_progress(self, pull: _Pull, progress: JobProgress) -> None:
        """What is done never goes down in what people see, even when a damaged file is fetched once more."""
        pull.rate.add(progress.done)
        self._show(
            pull,
            phase=TaskPhase.RUNNING,
            done=max(pull.shown.done, progress.done),
            stage=progress.note or progress.stage,
            rate_bytes_per_second=pull.rate.per_second(),
            eta_seconds=pull.rate.eta_seconds(progress.total - progress.done),
        )

    def _show(self, pull: _Pull, **changes: object) -> None:
        if changes.get("phase") is not TaskPhase.RUNNING:
            changes = {"rate_bytes_per_second": None, "eta_seconds": None, **changes}
        pull.shown = msgspec.structs.replace(pull.shown, **changes)
        self._tasks.show(pull.shown)

    def _set_paused(self, pull: _Pull, *, paused: bool) -> None:
        pull.queued = msgspec.structs.replace(pull.queued, paused=paused)

    def _find(self, pull_id: str) -> _Pull:
        if pull_id not in self._pulls:
            raise NotFound(
                f"There is no download {pull_id!r}.", hint="See which there are: localllm downloads"
            )
        return self._pulls[pull_id]

    async def _remember(self) -> None:
        await self._queue.write([pull.queued for pull in self._pulls.values()])


@asynccontextmanager
async def open_downloads(
    *,
    store: Store,
    access: Access,
    curated: Curated,
    settings: DownloadSettings,
    machine: MachineReadings,
    queue_file: Path,
    tasks: Tasks,
    background: Background,
    on_store_change: Callable[[], None],
) -> AsyncIterator[Downloads]:
    """The downloads with a line and threads of their own; pulls that were not done go on at once."""
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="download") as disk:
        # the certificates of the system take a moment to read
        async with await asyncio.to_thread(new_client) as client:
            workshop = Workshop(
                store=store,
                sources=Sources(client, access),
                client=client,
                disk=disk,
                throttle=Throttle(settings.bytes_per_second),
                workers=settings.connections,
            )
            downloads = Downloads(
                workshop=workshop,
                prospects=Prospects(workshop, curated, machine),
                queue=QueueFile(queue_file),
                tasks=tasks,
                background=background,
                on_store_change=on_store_change,
                at_once=settings.at_once,
            )
            await downloads.resume_all()
            try:
                yield downloads
            finally:
                await downloads.close()


def _words(error: LocalLLMError) -> dict[str, object]:
    return {"error_code": error.code, "error": f"{error.message} {error.hint or ''}".strip()}


def _ignore(progress: JobProgress) -> None:
    """A job that is only asked what is missing tells nobody."""
