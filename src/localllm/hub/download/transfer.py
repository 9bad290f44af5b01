"""Fetching one file: workers take pieces of it, a hasher follows the written prefix, a committer makes progress durable.

However it ends (pause, cancel, a crash, kill -9), what was recorded is there the next time; at most
``MAX_UNRECORDED_BYTES`` are fetched twice. The file counts only when its digest is right. Everything that may block
(disk, hashing) runs in the threads of ``disk``; the event loop only moves bytes between sockets and those.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
from msgspec import Struct

from localllm.core.errors import ChecksumMismatch, DownloadFailed, Gated, LimitError, LocalLLMError, Offline
from localllm.hub.download.digest import PrefixDigest
from localllm.hub.download.part import PartFile
from localllm.hub.download.throttle import Throttle
from localllm.hub.download.wire import check_status, content_range, follow, network_errors

T = TypeVar("T")

PIECE_BYTES = 16 << 20
COMMIT_BYTES = 24 << 20
MAX_UNRECORDED_BYTES = 48 << 20
COMMIT_SECONDS = 5.0
READ_BYTES = 1 << 20
MAX_WORKERS = 8
PATIENCE = 8
"""Failures in a row, without a byte in between, after which a download gives up (and can be resumed)."""
ASK_AGAIN_AFTER = 3
"""Failures in a row after which the address itself is doubted."""
MAX_RESTARTS = 5
"""How often a source that knows no ranges may break the line before it is given up."""


class Located(Struct, frozen=True, kw_only=True):
    """Where the bytes are right now: a signed URL expires, so this is asked for anew when it is refused.

    ``etag`` and ``size`` identify the file; ``token`` is shown to the URL's own origin only; ``trusted`` are origins
    that may lie inside this network.
    """

    url: str
    size: int
    etag: str | None = None
    token: str | None = None
    trusted: Collection[str] = ()


class Wanted(Struct, frozen=True, kw_only=True):
    """A file to fetch: ``locate`` says where, ``sha256`` (hex) what it must be, ``name`` what a person calls it."""

    name: str
    sha256: str | None
    locate: Callable[[], Awaitable[Located]]


class Progress(Struct, frozen=True):
    """``done`` of ``total`` bytes are written; ``verified`` of them are hashed. ``note`` says what is being waited for."""

    done: int
    total: int
    verified: int
    note: str | None = None


class Transfer:
    """One run of one download. ``run`` may be cancelled at any await; progress up to then is kept."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        wanted: Wanted,
        part_path: Path,
        *,
        on_progress: Callable[[Progress], None],
        disk: Executor,
        workers: int = 4,
        throttle: Throttle | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._part_path = part_path
        self._on_progress = on_progress
        self._disk = disk
        self._workers = max(1, min(workers, MAX_WORKERS))
        self._throttle = throttle or Throttle()
        self._sleep = sleep
        self._failures = 0
        self._restarts = 0
        self._validator: str | None = None
        self._trust_validator = True
        self._fetched = False
        self._grew = asyncio.Event()
        self._commit_due = asyncio.Event()
        self._committed = asyncio.Event()
        self._ranges_work = asyncio.Event()
        self._locating = asyncio.Lock()
        self._part: PartFile
        self._digest: PrefixDigest
        self._located: Located

    @property
    def sha256(self) -> str:
        """Hex digest of what was fetched, once ``run`` has returned."""
        return self._digest.hexdigest()

    async def run(self) -> PartFile:
        """Fetch and verify; the part file is complete and still open, for the caller to ``publish``.

        Raises:
            ChecksumMismatch: the bytes are not the file that was promised; the part is deleted.
            DiskFull, DownloadFailed, Offline, Gated, NotFound, RateLimited: the part is kept for the next try.
        """
        self._located = await self._wanted.locate()
        self._part = await self._in_thread(self._open)
        self._digest = PrefixDigest(self._part.read)
        try:
            await self._fetch_all()
            while await self._hash_some():
                self._tell()
            self._tell()
            self._check_digest()
        except ChecksumMismatch:
            await self._in_thread(self._part.discard)
            raise
        except BaseException:
            await self._in_thread(self._keep)
            raise
        return self._part

    # ------------------------------------------------------------ fetching

    async def _fetch_all(self) -> None:
        pieces = [_Piece(start, end) for start, end in reversed(self._part.pieces(PIECE_BYTES))]
        try:
            async with asyncio.TaskGroup() as group:
                committer = group.create_task(self._commit_often())
                group.create_task(self._hash_along())
                await self._work_all(pieces)
                committer.cancel()
                self._fetched = True
                self._grew.set()
        except BaseExceptionGroup as several:
            raise _first_of(several) from several
        await self._in_thread(self._part.commit)

    async def _work_all(self, pieces: list[_Piece]) -> None:
        """One worker first: its answer tells whether the source knows ranges, and so whether more may join."""
        async with asyncio.TaskGroup() as group:
            first = group.create_task(self._work(pieces))
            known = group.create_task(self._ranges_work.wait())
            await asyncio.wait({first, known}, return_when=asyncio.FIRST_COMPLETED)
            if known.done():
                for _ in range(min(self._workers - 1, len(pieces))):
                    group.create_task(self._work(pieces))
            await first
            known.cancel()

    async def _work(self, pieces: list[_Piece]) -> None:
        while pieces:
            piece = pieces.pop()
            while piece.at < piece.end:
                before, located = piece.at, self._located
                try:
                    await self._fetch_piece(piece, pieces)
                except (DownloadFailed, Offline, LimitError) as error:
                    await self._wait_after(error, progressed=piece.at > before)
                except Gated as error:
                    self._count_failure(error, progressed=piece.at > before)
                    await self._locate_again(located)

    async def _fetch_piece(self, piece: _Piece, pieces: list[_Piece]) -> None:
        """Fetch what is left of ``piece`` on one connection; its ``at`` says how far it came, also on an error."""
        located, validator = self._located, self._validator
        headers = {"Range": f"bytes={piece.at}-{piece.end - 1}"}
        if validator:
            headers["If-Range"] = validator
        async with follow(
            self._client, located.url, headers=headers, token=located.token, trusted=located.trusted
        ) as response:
            if response.status_code == 416:
                await self._locate_again(located)
                raise DownloadFailed(
                    f"The source says that {self._wanted.name} is shorter than it said before."
                )
            check_status(response, self._wanted.name)
            if response.status_code == 206:
                self._check_range(response, piece)
            elif validator:
                await self._doubt_validator(located)
                return
            else:
                await self._take_whole(response, piece, pieces)
            await self._receive(response, piece)

    def _check_range(self, response: httpx.Response, piece: _Piece) -> None:
        first, end, total = content_range(response.headers)
        if first != piece.at or end > piece.end or (total is not None and total != self._located.size):
            raise DownloadFailed(f"The source sent other bytes of {self._wanted.name} than were asked for.")
        etag = response.headers.get("etag", "")
        if self._trust_validator and self._validator is None and etag.startswith('"'):
            self._validator = etag  # of the host that really serves: a hub's own ETag is often another one
        self._ranges_work.set()

    async def _doubt_validator(self, located: Located) -> None:
        """The whole file instead of a range: it has changed, or this source's machines disagree about its ETag."""
        await self._locate_again(located)
        self._validator, self._trust_validator = None, False
        if self._wanted.sha256 is None:
            raise await self._changed()

    async def _take_whole(self, response: httpx.Response, piece: _Piece, pieces: list[_Piece]) -> None:
        """A 200 to a plain range: the source cannot do ranges, so the file comes from its first byte on, alone."""
        length = response.headers.get("content-length", "")
        if length.isdigit() and int(length) != self._located.size:
            kind = response.headers.get("content-type", "something else")
            raise DownloadFailed(
                f"{response.request.url.host} sent {length} bytes of {kind} instead of {self._wanted.name}.",
                hint="Perhaps the login page of a network: open the address in a browser.",
            )
        self._restarts += 1
        if self._ranges_work.is_set() or self._restarts > MAX_RESTARTS:
            self._failures = PATIENCE
            raise DownloadFailed(
                f"The source of {self._wanted.name} does not keep to ranges; it cannot be resumed."
            )
        pieces.clear()
        await self._in_thread(self._part.restart)
        self._digest.restart()
        piece.at, piece.end = 0, self._located.size

    async def _receive(self, response: httpx.Response, piece: _Piece) -> None:
        with network_errors(str(response.request.url)):
            async for data in response.aiter_raw(READ_BYTES):
                end = piece.at + len(data)
                if end > piece.end:
                    raise DownloadFailed(f"The source sent more of {self._wanted.name} than was asked for.")
                await self._wait_for_committer()
                await self._in_thread(self._part.write, piece.at, data)
                self._part.mark(piece.at, end)
                piece.at = end
                self._failures = 0
                self._grew.set()
                if self._part.unrecorded_bytes >= COMMIT_BYTES:
                    self._commit_due.set()
                self._tell()
                await self._throttle.spend(len(data))
        if piece.at < piece.end:
            raise DownloadFailed(f"The line broke {piece.end - piece.at} bytes early.")

    async def _wait_for_committer(self) -> None:
        """The disk is slower than the line: what is not recorded yet must not grow without end."""
        while self._part.unrecorded_bytes >= MAX_UNRECORDED_BYTES:
            self._commit_due.set()
            self._committed.clear()
            await self._committed.wait()

    # ------------------------------------------------------------ trouble

    async def _locate_again(self, used: Located) -> None:
        """The address that was ``used`` ran out: ask for a new one; the bytes stay while it is still the same file."""
        async with self._locating:
            if self._located is not used:
                return  # another worker was faster
            fresh = await self._wanted.locate()
            if (fresh.size, fresh.etag) != (used.size, used.etag):
                raise await self._changed()
            self._located = fresh

    async def _changed(self) -> LocalLLMError:
        await self._in_thread(self._part.restart)
        return ChecksumMismatch(
            f"{self._wanted.name} changed at the source while it was fetched.",
            hint="Pull again for the new one.",
        )

    def _count_failure(self, error: LocalLLMError, *, progressed: bool) -> None:
        self._failures = 1 if progressed else self._failures + 1
        if self._failures >= PATIENCE:
            raise error

    async def _wait_after(self, error: LocalLLMError, *, progressed: bool) -> None:
        located = self._located
        self._count_failure(error, progressed=progressed)
        asked = error.retry_after_s if isinstance(error, LimitError) else None
        pause = asked if asked is not None else min(30.0, 0.25 * 2**self._failures) * random.uniform(0.8, 1.2)
        self._tell(note=f"waiting {pause:.0f} s: {error.message}")
        await self._sleep(pause)
        if self._failures >= ASK_AGAIN_AFTER:
            try:
                await self._locate_again(located)
            except (DownloadFailed, Offline, LimitError):
                return  # the hub does not answer either; the next try is counted as this one was

    # ------------------------------------------------------------ keeping and checking

    def _open(self) -> PartFile:
        return PartFile(
            self._part_path,
            url=self._located.url.partition("?")[0],
            size=self._located.size,
            etag=self._located.etag,
            sha256=self._wanted.sha256,
        )

    async def _commit_often(self) -> None:
        while True:
            try:
                async with asyncio.timeout(COMMIT_SECONDS):
                    await self._commit_due.wait()
            except TimeoutError:
                pass
            self._commit_due.clear()
            if self._part.unrecorded_bytes:
                await self._in_thread(self._part.commit)
                self._committed.set()

    async def _hash_along(self) -> None:
        """Hash what is written without a gap, while the rest is still on its way."""
        while not self._fetched:
            await self._grew.wait()
            self._grew.clear()
            await self._hash_some()
            if self._part.prefix > self._digest.hashed_bytes:
                self._grew.set()

    async def _hash_some(self) -> bool:
        """Hash the next stretch of the prefix; False when there is none."""
        prefix = self._part.prefix
        if prefix <= self._digest.hashed_bytes:
            return False
        await self._in_thread(self._digest.step, prefix)
        return True

    def _check_digest(self) -> None:
        found, expected = self.sha256, self._wanted.sha256
        if expected is not None and found != expected:
            raise ChecksumMismatch(
                f"{self._wanted.name} arrived with another SHA-256 than promised; it was deleted.",
                hint="If it happens twice, the source or the line corrupts it.",
                details={"expected": expected, "found": found},
            )

    def _keep(self) -> None:
        """Record what is there before letting go; a full disk must not hide the error we are leaving with."""
        try:
            self._part.commit()
        except LocalLLMError:
            pass
        finally:
            self._part.close()

    def _tell(self, note: str | None = None) -> None:
        self._on_progress(
            Progress(self._part.written_bytes, self._located.size, self._digest.hashed_bytes, note)
        )

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._disk, work, *arguments)


@dataclass(slots=True)
class _Piece:
    """Bytes [at, end) that a worker still has to fetch."""

    at: int
    end: int


def _first_of(several: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error to show: ours before any other, the first of them."""
    ours, _ = several.split(LocalLLMError)
    chosen: BaseException = ours or several
    while isinstance(chosen, BaseExceptionGroup):
        chosen = chosen.exceptions[0]
    return chosen
