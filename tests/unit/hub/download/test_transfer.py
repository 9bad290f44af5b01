"""The transfer against a real server that misbehaves; every test ends with the right bytes or a worded refusal."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from localllm.core.errors import ChecksumMismatch, DiskFull, DownloadFailed, Gated, LocalLLMError, NotFound
from localllm.hub.download import transfer
from localllm.hub.download.part import PartFile
from localllm.hub.download.throttle import Throttle
from localllm.hub.download.transfer import Located, Progress, Transfer, Wanted
from tests.support.loopback_hub import LFS_POINTER, PORTAL, Faults, LoopbackHub

CONTENT = os.urandom(3 << 20) + b"the end"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with LoopbackHub({"m.gguf": CONTENT}).serving() as hub:
        yield hub


class Fetch:
    """One file of the hub, fetched as often as a test wants; nothing sleeps for real."""

    def __init__(
        self, hub: LoopbackHub, client: httpx.AsyncClient, disk: ThreadPoolExecutor, folder: Path
    ) -> None:
        self.hub, self.client, self.disk = hub, client, disk
        self.part = folder / "m.part"
        self.target = folder / "m.done"
        self.progress: list[Progress] = []
        self.pauses: list[float] = []
        self.located = 0
        self.on_progress: Callable[[Progress], None] = self.progress.append

    async def locate(self) -> Located:
        self.located += 1
        trusted = (f"127.0.0.1:{self.hub.port}",)
        url = f"{self.hub.url}/cdn/{DIGEST}?signature={self.hub.signature}"
        return Located(url=url, size=len(CONTENT), etag=self.hub.faults.etag or "v1", trusted=trusted)

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        await asyncio.sleep(0)

    async def run(
        self, *, sha256: str | None = DIGEST, workers: int = 4, throttle: Throttle | None = None
    ) -> bytes:
        job = Transfer(
            self.client,
            Wanted(name="m.gguf", sha256=sha256, locate=self.locate),
            self.part,
            on_progress=self.on_progress,
            disk=self.disk,
            workers=workers,
            throttle=throttle,
            sleep=self.sleep,
        )
        part = await job.run()
        assert job.sha256 == DIGEST
        part.publish(self.target)
        return self.target.read_bytes()


@pytest.fixture
def fetch(hub: LoopbackHub, client: httpx.AsyncClient, disk: ThreadPoolExecutor, tmp_path: Path) -> Fetch:
    return Fetch(hub, client, disk, tmp_path)


async def test_a_file_is_fetched_in_parallel_ranges_and_verified(fetch: Fetch) -> None:
    assert await fetch.run() == CONTENT
    ranges = [seen.headers.get("Range") for seen in fetch.hub.requests_for("/cdn/")]
    assert len(ranges) == 7
    assert None not in ranges
    last = fetch.progress[-1]
    assert (last.done, last.verified, last.total) == (len(CONTENT),) * 3
    done = [progress.done for progress in fetch.progress]
    assert done == sorted(done)
    assert not fetch.part.exists()


async def test_the_line_breaks_again_and_again(fetch: Fetch) -> None:
    fetch.hub.faults = Faults(drop_after_bytes=200_000, drops=50)
    assert await fetch.run() == CONTENT
    assert fetch.hub.sent_bytes <= len(CONTENT) + 50 * 200_000
    assert fetch.located < 5


async def test_a_line_that_never_carries_a_byte_is_given_up_and_can_be_resumed(fetch: Fetch) -> None:
    fetch.hub.faults = Faults(drop_after_bytes=0)
    with pytest.raises(DownloadFailed):
        await fetch.run()
    assert len(fetch.pauses) < 40
    fetch.hub.faults = Faults()
    assert await fetch.run() == CONTENT


async def test_a_source_without_ranges_is_read_from_the_start(fetch: Fetch) -> None:
    fetch.hub.faults = Faults(ignore_range=True)
    assert await fetch.run() == CONTENT
    assert len(fetch.hub.requests_for("/cdn/")) == 1


async def test_a_source_without_ranges_that_breaks_off_starts_over_and_ends(fetch: Fetch) -> None:
    fetch.hub.faults = Faults(ignore_range=True, drop_after_bytes=1 << 20, drops=2)
    assert await fetch.run() == CONTENT
    fetch.target.unlink()
    fetch.hub.faults = Faults(ignore_range=True, drop_after_bytes=1 << 20)
    with pytest.raises(DownloadFailed, match="does not keep to ranges"):
        await fetch.run()
    assert len(fetch.hub.requests_for("/cdn/")) < 14


@pytest.mark.parametrize("body", [b"", b"short", LFS_POINTER, PORTAL])
async def test_another_body_than_the_file_is_refused(fetch: Fetch, body: bytes) -> None:
    fetch.hub.faults = Faults(body=body)
    with pytest.raises(DownloadFailed, match=f"sent {len(body)} bytes"):
        await fetch.run()
    assert not fetch.target.exists()


async def test_more_bytes_than_asked_for_are_not_taken(fetch: Fetch) -> None:
    fetch.hub.faults = Faults(too_long=True)
    with pytest.raises(DownloadFailed, match="more of"):
        await fetch.run()
    assert fetch.part.stat().st_size <= len(CONTENT)
    fetch.hub.faults = Faults()
    assert await fetch.run() == CONTENT


async def test_a_range_that_is_refused_once_is_asked_for_again(fetch: Fetch) -> None:
    fetch.hub.faults = Faults(unsatisfiable=2)
    assert await fetch.run() == CONTENT


async def test_silence_after_the_headers_or_near_the_end_is_a_broken_line(fetch: Fetch) -> None:
    fetch.hub.faults = Faults(stall_after_bytes=0, stalls=1)
    assert await fetch.run() == CONTENT
    fetch.target.unlink()
    fetch.hub.faults = Faults(stall_after_bytes=500_000, stalls=1)
    assert await fetch.run(workers=1) == CONTENT


async def test_a_flipped_byte_is_found_and_the_part_goes(fetch: Fetch) -> None:
    fetch.hub.faults = Faults(flip_byte=1_000_000)
    with pytest.raises(ChecksumMismatch) as caught:
        await fetch.run()
    assert caught.value.details["expected"] == DIGEST
    assert list(fetch.part.parent.iterdir()) == []
    assert await fetch.run() == CONTENT


async def test_a_file_that_changes_without_a_digest_is_noticed(fetch: Fetch) -> None:
    def change(progress: Progress) -> None:
        if progress.done > 1 << 20:
            fetch.hub.faults.etag = '"v2"'

    fetch.on_progress = change
    with pytest.raises(ChecksumMismatch, match="changed at the source"):
        await fetch.run(sha256=None, workers=1)
    assert not fetch.part.exists()


async def test_a_server_whose_etags_disagree_is_not_a_changed_file(fetch: Fetch) -> None:
    def disagree(progress: Progress) -> None:
        if progress.done > 1 << 20:
            fetch.hub.faults.etag = '"edge-2"'

    async def locate() -> Located:
        located = await real()
        return Located(url=located.url, size=located.size, etag=DIGEST, trusted=located.trusted)

    real, fetch.locate = fetch.locate, locate  # type: ignore[method-assign]
    fetch.on_progress = disagree
    assert await fetch.run(workers=1) == CONTENT


async def test_a_signature_that_runs_out_midway_is_renewed_and_the_bytes_stay(fetch: Fetch) -> None:
    def expire(progress: Progress) -> None:
        if progress.done > 1 << 20 and fetch.hub.signature == 1:
            fetch.hub.signature = 2

    fetch.on_progress = expire
    assert await fetch.run() == CONTENT
    assert fetch.located == 2
    assert fetch.hub.sent_bytes < len(CONTENT) + (1 << 20)


async def test_refusal_for_good_is_said(fetch: Fetch) -> None:
    fetch.hub.faults = Faults(refuse_signatures=1 << 30)
    with pytest.raises(Gated):
        await fetch.run()


async def test_a_busy_source_is_waited_for_as_long_as_it_says(fetch: Fetch) -> None:
    fetch.hub.faults = Faults(busy=3, retry_after="17")
    assert await fetch.run() == CONTENT
    assert fetch.pauses == [17.0, 17.0, 17.0]
    fetch.target.unlink()
    fetch.hub.faults = Faults(unavailable=2)
    fetch.pauses.clear()
    assert await fetch.run() == CONTENT
    assert 0.3 < fetch.pauses[0] < fetch.pauses[1] < 1.5


async def test_waiting_is_shown(fetch: Fetch) -> None:
    fetch.hub.faults = Faults(unavailable=1)
    await fetch.run()
    assert any("waiting" in (progress.note or "") for progress in fetch.progress)


async def test_what_is_gone_is_not_asked_for_again(fetch: Fetch) -> None:
    fetch.hub.by_digest.clear()
    with pytest.raises(NotFound):
        await fetch.run()
    assert len(fetch.hub.requests_for("/cdn/")) == 1


async def test_a_pause_keeps_what_is_here(fetch: Fetch) -> None:
    """Cancelled and resumed twenty times at random points: each run begins where the one before it ended."""
    fetch.hub.faults = Faults(bytes_per_second=4e6)
    reached = 0
    for pause in range(20):
        fetch.progress.clear()
        try:
            async with asyncio.timeout(0.01 + 0.005 * pause):
                await fetch.run()
            break
        except TimeoutError:
            if fetch.progress:
                assert fetch.progress[0].done > reached
                reached = fetch.progress[-1].done
    fetch.hub.faults = Faults()
    if not fetch.target.exists():
        assert await fetch.run() == CONTENT
    assert fetch.target.read_bytes() == CONTENT
    assert reached > 1 << 20


async def test_a_full_disk_stops_it_at_once_and_keeps_the_part(
    fetch: Fetch, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = PartFile.write

    def fills_up(self: PartFile, offset: int, data: bytes) -> None:
        if self.written_bytes > 1 << 20:
            raise DiskFull("full")
        real(self, offset, data)

    monkeypatch.setattr(PartFile, "write", fills_up)
    with pytest.raises(DiskFull):
        await fetch.run()
    assert fetch.pauses == []
    monkeypatch.undo()
    fetch.hub.sent_bytes = 0
    assert await fetch.run() == CONTENT
    assert fetch.hub.sent_bytes <= len(CONTENT) - (1 << 20)


async def test_a_slow_disk_holds_the_line_back(fetch: Fetch, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a kill would lose stays bounded, however long the disk takes to confirm."""
    worst = 0
    real = PartFile.commit

    def slow(self: PartFile) -> None:
        nonlocal worst
        worst = max(worst, self.unrecorded_bytes)
        import time

        time.sleep(0.05)
        real(self)

    monkeypatch.setattr(PartFile, "commit", slow)
    assert await fetch.run() == CONTENT
    assert 0 < worst <= transfer.MAX_UNRECORDED_BYTES + 8 * transfer.READ_BYTES


async def test_a_limit_is_kept(fetch: Fetch) -> None:
    waited: list[float] = []
    clock = 0.0

    async def sleep(seconds: float) -> None:
        nonlocal clock
        waited.append(seconds)
        clock += seconds

    await fetch.run(throttle=Throttle(1 << 20, clock=lambda: clock, sleep=sleep), workers=1)
    assert 2.5 < sum(waited) < 3.5


@pytest.mark.parametrize("state", [b"", b"garbage", b'{"format":1}'])
async def test_a_broken_state_file_is_no_progress(fetch: Fetch, state: bytes) -> None:
    fetch.part.write_bytes(b"old bytes")
    fetch.part.with_suffix(".state").write_bytes(state)
    assert await fetch.run() == CONTENT


async def test_no_error_but_ours_gets_out(fetch: Fetch, hub: LoopbackHub) -> None:
    hub.faults = Faults(drop_after_bytes=0)
    hub.cdn = "http://127.0.0.1:1"
    with pytest.raises(LocalLLMError):
        await fetch.run(workers=8)
