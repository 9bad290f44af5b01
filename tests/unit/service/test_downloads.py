"""Pulls in the service: seen, paused, resumed, cancelled, and there again after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from localllm.core.config import DownloadSettings
from localllm.core.control import PullRequest, Task, TaskPhase
from localllm.core.errors import Conflict, DiskFull, GGUFError, ModelNotFound, NotFound
from localllm.hardware.simulate import simulate
from localllm.hub.curated import FORMAT, Catalogue, Curated, CuratedModel
from localllm.hub.download import transfer
from localllm.hub.sources.access import read_access
from localllm.hub.store import Store
from localllm.service import downloads as module
from localllm.service.background import Background
from localllm.service.downloads import Downloads, open_downloads
from localllm.service.machine import MachineReadings
from localllm.service.tasks import Tasks
from localllm.service.upkeep import collect, start_verify
from tests.support.hub_files import loopback_hub
from tests.support.loopback_hub import REPOSITORY, Faults, LoopbackHub

CURATED = CuratedModel(
    name="tiny-1b",
    title="Tiny 1B",
    maker="maker",
    parameters=1_000_000,
    context_length=2048,
    architecture="llama",
    licence="mit",
    purposes=("chat", "coding"),
    aliases=("tiny:1b",),
    repositories=(REPOSITORY,),
)

TINY = PullRequest(reference="ollama:tiny")


class Session:
    """One life of the service: its downloads, its task list, and how often the store was said to have changed."""

    def __init__(self, downloads: Downloads, tasks: Tasks) -> None:
        self.downloads = downloads
        self.tasks = tasks
        self.store_changes = 0

    async def until(self, wanted: Callable[[Task], bool], task_id: str) -> Task:
        async with asyncio.timeout(20):
            while not wanted(self.tasks.get(task_id)):  # noqa: ASYNC110 - the task list has no event of its own
                await asyncio.sleep(0.01)
        return self.tasks.get(task_id)

    async def until_phase(self, phase: TaskPhase, task_id: str) -> Task:
        return await self.until(lambda task: task.phase is phase, task_id)


Open = Callable[[], AbstractAsyncContextManager[Session]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub")


@pytest.fixture
def hub(folder: Path) -> Iterator[LoopbackHub]:
    with loopback_hub(folder).serving() as hub:
        yield hub


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def start(hub: LoopbackHub, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    monkeypatch.setattr(transfer, "READ_BYTES", 32 << 10)
    monkeypatch.setattr(transfer, "COMMIT_BYTES", 64 << 10)
    monkeypatch.setattr(transfer, "PATIENCE", 2)
    monkeypatch.setattr(module, "RETRY_AFTER_S", (0.05,))

    @asynccontextmanager
    async def start() -> AsyncIterator[Session]:
        async with Background() as background:
            tasks = Tasks(background)
            session: Session
            async with open_downloads(
                store=store,
                access=read_access({"HF_ENDPOINT": hub.url}, ollama=hub.url),
                curated=Curated(Catalogue(format=FORMAT, revision="1", models=(CURATED,))),
                settings=DownloadSettings(),
                machine=MachineReadings(lambda: simulate("RTX 4090")),
                queue_file=tmp_path / "state" / "downloads.json",
                tasks=tasks,
                background=background,
                on_store_change=lambda: setattr(session, "store_changes", session.store_changes + 1),
            ) as downloads:
                session = Session(downloads, tasks)
                yield session

    return start


async def test_a_pull_is_shown_to_its_end(start: Open, store: Store, hub: LoopbackHub) -> None:
    async with start() as session:
        hub.faults = Faults(bytes_per_second=1e6)
        task = await session.downloads.start(TINY)
        assert (task.kind, task.title, task.total) == ("pull", "tiny:latest", hub.size_of("tiny-F16.gguf"))
        seen: list[int] = []

        def ended(now: Task) -> bool:
            seen.append(now.done)
            return now.phase is TaskPhase.DONE

        await session.until(ended, task.id)
        done = session.tasks.get(task.id)
        assert (done.result, done.done, done.eta_seconds) == ("tiny:latest", done.total, None)
        assert seen == sorted(seen)
        assert len(set(seen)) >= 3
        assert session.store_changes == 1
    assert store.get("tiny:latest").problem is None


async def test_a_preview_fetches_no_weights_and_the_pull_asks_nothing_again(
    start: Open, hub: LoopbackHub
) -> None:
    async with start() as session:
        request = PullRequest(reference="tiny:1b:F16")
        preview = await session.downloads.prospects.preview(request)
        assert (preview.name, preview.quant, preview.quant_reason) == ("tiny-1b:F16", "F16", "asked for")
        assert preview.origin.startswith(f"hf.co/{REPOSITORY}@")
        assert not preview.here
        assert preview.fit is not None
        assert preview.missing_bytes == preview.size_bytes < preview.free_bytes
        listings = len(hub.requests_for("/api/"))
        task = await session.downloads.start(request)
        assert len(hub.requests_for("/api/")) == listings
        await session.until_phase(TaskPhase.DONE, task.id)
        again = await session.downloads.prospects.preview(request)
        assert (again.here, again.missing_bytes) == (True, 0)


async def test_one_model_is_pulled_once(start: Open, hub: LoopbackHub) -> None:
    async with start() as session:
        await session.downloads.prospects.preview(TINY)
        hub.faults = Faults(stall_after_bytes=100_000)
        first = await session.downloads.start(TINY)
        second = await session.downloads.start(TINY)
        assert first.id == second.id
        assert len(session.tasks.all()) == 1


async def test_pause_and_resume_twenty_times(start: Open, hub: LoopbackHub, store: Store) -> None:
    async with start() as session:
        hub.faults = Faults(bytes_per_second=1e6)
        task = await session.downloads.start(TINY)
        reached = 0
        for _ in range(20):
            await asyncio.sleep(0.01)
            if session.tasks.get(task.id).phase is TaskPhase.DONE:
                break
            now = await session.downloads.pause(task.id)
            assert now.phase is TaskPhase.PAUSED
            assert now.rate_bytes_per_second is None
            assert now.done >= reached
            reached = now.done
            await session.downloads.resume(task.id)
        hub.faults = Faults()
        await session.until_phase(TaskPhase.DONE, task.id)
    assert store.verify("tiny:latest").problem is None


async def test_a_cancelled_pull_leaves_nothing(start: Open, hub: LoopbackHub, store: Store) -> None:
    async with start() as session:
        await session.downloads.prospects.preview(TINY)
        hub.faults = Faults(stall_after_bytes=200_000)
        task = await session.downloads.start(TINY)
        await session.until(lambda now: now.done > 0, task.id)
        cancelled = await session.downloads.cancel(task.id)
        assert cancelled.phase is TaskPhase.CANCELLED
        assert [path for path in (store.root / "downloads").iterdir() if path.suffix != ".lock"] == []
        with pytest.raises(NotFound):
            await session.downloads.pause(task.id)
    async with start() as later:
        assert later.tasks.all() == ()


async def test_after_a_restart_it_goes_on_where_it_was(start: Open, hub: LoopbackHub, store: Store) -> None:
    async with start() as session:
        await session.downloads.prospects.preview(TINY)
        hub.faults = Faults(stall_after_bytes=300_000)
        task = await session.downloads.start(TINY)
        await session.until(lambda now: now.done > 200_000, task.id)
    hub.released.set()
    hub.faults, hub.sent_bytes = Faults(), 0
    async with start() as session:
        assert [now.id for now in session.tasks.all()] == [task.id]
        await session.until_phase(TaskPhase.DONE, task.id)
    assert hub.sent_bytes < hub.size_of("tiny-F16.gguf") - 150_000
    assert store.verify("tiny:latest").problem is None


async def test_a_paused_pull_stays_paused_after_a_restart(start: Open, hub: LoopbackHub) -> None:
    async with start() as session:
        await session.downloads.prospects.preview(TINY)
        hub.faults = Faults(stall_after_bytes=1)
        task = await session.downloads.start(TINY)
        await session.downloads.pause(task.id)
    hub.seen.clear()
    async with start() as session:
        await asyncio.sleep(0.1)
        assert session.tasks.get(task.id).phase is TaskPhase.PAUSED
        assert hub.seen == []


async def test_a_dead_line_is_tried_again_until_it_works(start: Open, hub: LoopbackHub) -> None:
    async with start() as session:
        await session.downloads.prospects.preview(TINY)
        hub.faults = Faults(drop_after_bytes=0)
        task = await session.downloads.start(TINY)
        waiting = await session.until_phase(TaskPhase.WAITING, task.id)
        waiting = await session.until(lambda now: "trying again" in (now.stage or ""), task.id)
        assert waiting.error is None
        hub.faults = Faults()
        await session.until_phase(TaskPhase.DONE, task.id)


async def test_a_full_disk_pauses_it_with_the_reason(
    start: Open, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with start() as session:

        async def full(self: object) -> None:
            raise DiskFull("no room", hint="free some")

        monkeypatch.setattr("localllm.hub.pull_job.Job.run", full)
        task = await session.downloads.start(TINY)
        paused = await session.until_phase(TaskPhase.PAUSED, task.id)
        assert (paused.error_code, paused.error) == ("disk_full", "no room free some")
        monkeypatch.undo()
        await session.downloads.resume(task.id)
        done = await session.until_phase(TaskPhase.DONE, task.id)
        assert done.error is None


async def test_what_does_not_fit_beside_the_others_is_not_begun(
    start: Open, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = hub.size_of("tiny-F16.gguf")
    async with start() as session:
        await session.downloads.prospects.preview(TINY)
        hub.faults = Faults(stall_after_bytes=1)
        first = await session.downloads.start(TINY)
        await session.until(lambda now: hub.faults.stalls == 0, first.id)
        monkeypatch.setattr("localllm.hub.pull_job.disk_room", lambda folder: (size * 2 + 300_000, 300_000))
        with pytest.raises(DiskFull, match="for other downloads"):
            await session.downloads.start(PullRequest(reference=f"{REPOSITORY}:F32"))
        assert len(session.tasks.all()) == 1


async def test_a_damaged_source_fails_loudly(start: Open, hub: LoopbackHub, store: Store) -> None:
    async with start() as session:
        await session.downloads.prospects.preview(TINY)
        hub.faults = Faults(flip_byte=300_000, flips=5)
        task = await session.downloads.start(TINY)
        failed = await session.until_phase(TaskPhase.FAILED, task.id)
        assert failed.error_code == "checksum_mismatch"
    assert store.list() == ()


async def test_refusals_come_before_anything_is_begun(start: Open) -> None:
    async with start() as session:
        with pytest.raises(GGUFError, match="cannot run in localllm's own engines") as caught:
            await session.downloads.start(PullRequest(reference="ollama:odd"))
        assert "ollama pull" in (caught.value.hint or "")
        with pytest.raises(ModelNotFound) as missing:
            await session.downloads.start(PullRequest(reference="tinny:1b"))
        assert "tiny-1b" in missing.value.near or "tiny:1b" in missing.value.near
        assert session.tasks.all() == ()


async def test_what_no_model_and_no_pull_needs_is_collected(
    start: Open, hub: LoopbackHub, store: Store
) -> None:
    async with start() as session:
        await session.downloads.prospects.preview(TINY)
        hub.faults = Faults(stall_after_bytes=200_000)
        task = await session.downloads.start(TINY)
        await session.until(lambda now: now.done > 0, task.id)
        await session.downloads.pause(task.id)
        forgotten = store.root / "downloads" / f"{'0' * 64}.part"
        forgotten.write_bytes(b"x" * 100_000)
        orphan = store.root / "blobs" / f"sha256-{'1' * 64}"
        orphan.parent.mkdir()
        orphan.write_bytes(b"y" * 1000)
        freed = await collect(store, session.downloads)
        assert (freed.blob_bytes, freed.part_bytes >= 100_000) == (1000, True)
        assert not forgotten.exists()
        assert not orphan.exists()
        hub.released.set()
        await session.downloads.resume(task.id)
        await session.until_phase(TaskPhase.DONE, task.id)
        assert (await collect(store, session.downloads)).blob_bytes == 0
        assert store.verify("tiny:latest").problem is None


async def test_a_model_is_verified_as_a_task(start: Open, store: Store) -> None:
    async with start() as session:
        task = await session.downloads.start(TINY)
        await session.until_phase(TaskPhase.DONE, task.id)
        model = store.get("tiny:latest")
        check = start_verify(session.tasks, store, model)
        assert (await session.until_phase(TaskPhase.DONE, check.id)).result == "tiny:latest"
        model.path.chmod(0o600)
        with model.path.open("r+b") as blob:
            blob.seek(-1, 2)
            blob.write(b"?")
        check = start_verify(session.tasks, store, model)
        assert (await session.until_phase(TaskPhase.FAILED, check.id)).error_code == "checksum_mismatch"
        with pytest.raises(Conflict, match="belongs to ollama"):
            start_verify(session.tasks, store, msgspec.structs.replace(model, owner="ollama"))


async def test_searching(start: Open, hub: LoopbackHub) -> None:
    async with start() as session:
        found = await session.downloads.prospects.search("coding tiny")
        assert [hit.reference for hit in found.hits] == ["tiny-1b", f"hf.co/{REPOSITORY}"]
        hub.faults = Faults(unavailable=10)
        found = await session.downloads.prospects.search("coding")
        assert [hit.reference for hit in found.hits] == ["tiny-1b"]
        assert "Hugging Face" in found.problems[0]
