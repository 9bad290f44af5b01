from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from filelock import FileLock

from localllm.core.errors import ChecksumMismatch, Conflict, DiskFull, DownloadFailed, GGUFError, HubError
from localllm.hub.download import transfer
from localllm.hub.download.throttle import Throttle
from localllm.hub.pull_job import Job, JobProgress, Workshop, require_room
from localllm.hub.pull_plan import PullPlan, Sources, prepare
from localllm.hub.references import parse_reference
from localllm.hub.sources.base import Access
from localllm.hub.store import Store, StoredModel
from tests.support.hub_files import recommend
from tests.support.loopback_hub import REPOSITORY, Faults, LoopbackHub


@pytest.fixture
def disk() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(4) as pool:
        yield pool


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def shop(store: Store, client: httpx.AsyncClient, access: Access, disk: ThreadPoolExecutor) -> Workshop:
    return Workshop(
        store=store, sources=Sources(client, access), client=client, disk=disk, throttle=Throttle()
    )


@pytest.fixture(autouse=True)
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "READ_BYTES", 64 << 10)
    monkeypatch.setattr(transfer, "COMMIT_BYTES", 256 << 10)


async def plan_of(shop: Workshop, text: str) -> PullPlan:
    return (await prepare(shop.sources, parse_reference(text), recommend=recommend)).plan


async def pull(shop: Workshop, plan: PullPlan, seen: list[JobProgress] | None = None) -> StoredModel:
    return await Job(shop, plan, (seen if seen is not None else []).append).run()


def left_in(shop: Workshop) -> set[str]:
    return {path.name for path in shop.folder.iterdir() if path.suffix != ".lock"}


async def test_a_model_is_pulled_verified_and_listed(shop: Workshop, hub: LoopbackHub, store: Store) -> None:
    plan = await plan_of(shop, f"{REPOSITORY}:F16")
    seen: list[JobProgress] = []
    model = await pull(shop, plan, seen)
    assert model == store.get(f"{REPOSITORY}:F16")
    assert model.sha256 == hub.digests["tiny-F16.gguf"]
    assert model.size_bytes == hub.size_of("tiny-F16.gguf")
    assert model.mmproj_path is not None
    assert model.mmproj_path.read_bytes() == hub.files["mmproj-tiny-F16.gguf"]
    assert "vision" in model.capabilities
    assert (model.licence, model.problem) == ("apache-2.0", None)
    assert store.verify(model.name) == model
    assert seen[-1].done == seen[-1].total == plan.size_bytes
    assert left_in(shop) == set()


async def test_a_split_model_is_pulled_whole(shop: Workshop, store: Store) -> None:
    model = await pull(shop, await plan_of(shop, f"{REPOSITORY}:BF16"))
    assert model.path.name == "model-00001-of-00002.gguf"
    assert store.facts(model.name).architecture == "llama"
    assert left_in(shop) == set()


async def test_what_is_here_is_not_fetched_again(shop: Workshop, hub: LoopbackHub, store: Store) -> None:
    plan = await plan_of(shop, f"{REPOSITORY}:F16")
    first = await pull(shop, plan)
    hub.seen.clear()
    assert await pull(shop, plan) == first
    assert hub.seen == []
    # the same bytes under another name: the file is shared
    other = await plan_of(shop, "ollama:tiny")
    hub.sent_bytes = 0
    model = await pull(shop, other)
    assert model.path == first.path
    assert hub.sent_bytes == 0
    assert Job(shop, other, print).missing_bytes() == 0
    store.remove(first.name)
    assert store.get("tiny:latest").problem is None


async def test_two_pulls_of_one_file_share_it(shop: Workshop, hub: LoopbackHub) -> None:
    plans = [await plan_of(shop, f"{REPOSITORY}:F16"), await plan_of(shop, "ollama:tiny")]
    hub.sent_bytes = 0
    hub.faults.bytes_per_second = 5e6
    models = await asyncio.gather(*(pull(shop, plan) for plan in plans))
    assert models[0].path == models[1].path
    assert hub.sent_bytes <= plans[0].size_bytes + 10, "a byte is asked for to find a blob"


async def test_another_process_with_the_same_store_is_waited_for(
    shop: Workshop, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localllm.hub.pull_job.LOCK_SECONDS", 0.02)
    plan = await plan_of(shop, "ollama:tiny")
    shop.folder.mkdir(parents=True)
    other = FileLock(shop.folder / f"{plan.files[0].sha256}.lock", thread_local=False)
    other.acquire()
    seen: list[JobProgress] = []
    running = asyncio.gather(pull(shop, plan, seen))
    await asyncio.sleep(0.1)
    assert not running.done()
    assert "another localllm" in (seen[-1].note or "")
    other.release()
    await running


async def test_a_damaged_arrival_is_fetched_once_more_and_then_refused(
    shop: Workshop, hub: LoopbackHub, store: Store
) -> None:
    plan = await plan_of(shop, "ollama:tiny")
    hub.faults = Faults(flip_byte=300_000, flips=1)
    seen: list[JobProgress] = []
    await pull(shop, plan, seen)
    assert any("once more" in (progress.note or "") for progress in seen)
    store.remove("tiny:latest")
    hub.faults = Faults(flip_byte=300_000, flips=2)
    with pytest.raises(ChecksumMismatch):
        await pull(shop, plan)
    assert store.list() == ()
    assert left_in(shop) == set()


async def test_a_split_set_with_a_bad_part_is_not_half_published(
    shop: Workshop, hub: LoopbackHub, store: Store
) -> None:
    plan = await plan_of(shop, f"{REPOSITORY}:BF16")
    hub.faults = Faults(flip_byte=700_000, flips=2)  # beyond the end of the first part
    with pytest.raises(ChecksumMismatch):
        await pull(shop, plan)
    assert store.list() == ()
    assert not (store.root / "blobs").exists()
    hub.faults, hub.sent_bytes = Faults(), 0
    await pull(shop, plan)
    assert hub.sent_bytes < plan.size_bytes, "the good part was kept"


async def test_a_kill_between_moving_the_file_and_writing_the_manifest(
    shop: Workshop, hub: LoopbackHub, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await plan_of(shop, f"{REPOSITORY}:BF16")

    def killed(self: object, manifest: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("localllm.hub.manifest.Manifests.write", killed)
    with pytest.raises(KeyboardInterrupt):
        Job(shop, plan, print)._publish([await Job(shop, plan, print)._obtain(f) for f in plan.all_files])
    monkeypatch.undo()
    assert store.list() == ()
    hub.sent_bytes = 0
    await pull(shop, plan)
    assert hub.sent_bytes == 0


async def test_a_file_that_is_no_model_is_not_published(
    shop: Workshop, hub: LoopbackHub, store: Store
) -> None:
    plan = await plan_of(shop, f"{hub.url}/files/odd.gguf")
    assert plan.files[0].sha256 is None
    with pytest.raises(GGUFError, match="cannot run here"):
        await pull(shop, plan)
    assert store.list() == ()


async def test_an_interrupted_pull_goes_on(shop: Workshop, hub: LoopbackHub) -> None:
    plan = await plan_of(shop, "ollama:tiny")
    hub.faults = Faults(stall_after_bytes=300_000)
    begun = asyncio.Event()

    def on_progress(progress: JobProgress) -> None:
        if progress.done:
            begun.set()

    async with asyncio.TaskGroup() as group:
        running = group.create_task(Job(shop, plan, on_progress).run())
        async with asyncio.timeout(10):
            await begun.wait()
        running.cancel()
    assert 0 < Job(shop, plan, print).missing_bytes() < plan.size_bytes
    hub.faults = Faults()
    assert (await pull(shop, plan)).sha256 == hub.digests["tiny-F16.gguf"]


async def test_discarding_deletes_what_nobody_else_wants(shop: Workshop, hub: LoopbackHub) -> None:
    plan = await plan_of(shop, f"{REPOSITORY}:F16")
    hub.faults = Faults(drop_after_bytes=0)
    for file in plan.all_files:
        (shop.folder).mkdir(parents=True, exist_ok=True)
        (shop.folder / f"{file.sha256}.part").write_bytes(b"x")
    Job(shop, plan, print).discard(but=plan.files)
    assert left_in(shop) == {f"{plan.files[0].sha256}.part"}
    Job(shop, plan, print).discard()
    assert left_in(shop) == set()


async def test_a_name_that_is_another_models_is_not_taken_over(
    shop: Workshop, hub: LoopbackHub, store: Store, served_folder: Path
) -> None:
    store.import_file(served_folder / "tiny-F32.gguf", name="tiny:latest")
    with pytest.raises(Conflict, match="already"):
        await pull(shop, await plan_of(shop, "ollama:tiny"))


async def test_room_is_counted_over_all_pulls(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    require_room(tmp_path / "not" / "there" / "yet", 1 << 20, 0)
    with pytest.raises(DiskFull) as caught:
        require_room(tmp_path, free // 2 + 1, free // 2)
    assert caught.value.details["needed_bytes"] == free // 2 * 2 + 1
    with pytest.raises(DiskFull, match="reserve"):
        require_room(tmp_path, free, 0)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
async def test_a_store_that_cannot_be_written_is_an_error_in_words(shop: Workshop, store: Store) -> None:
    plan = await plan_of(shop, "ollama:tiny")
    store.root.mkdir(parents=True)
    store.root.chmod(0o500)
    try:
        with pytest.raises(HubError):
            await pull(shop, plan)
    finally:
        store.root.chmod(0o700)


async def test_a_line_that_is_dead_leaves_the_pull_for_later(
    shop: Workshop, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = await plan_of(shop, "ollama:tiny")
    monkeypatch.setattr(transfer, "PATIENCE", 2)
    hub.faults = Faults(drop_after_bytes=0)
    with pytest.raises(DownloadFailed):
        await pull(shop, plan)
    hub.faults = Faults()
    await pull(shop, plan)
