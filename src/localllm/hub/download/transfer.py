"""Fetching one file: workers take pieces of it, a hasher follows the written prefix, a committer makes progress durable.

However it ends (pause, cancel, a crash, kill -9), what was recorded is there the next time; at most ``COMMIT_BYTES`` are
fetched twice. The file counts only when its digest is right.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread
import httpx
from msgspec import Struct

from localllm.core.errors import (
    ChecksumMismatch,
    DownloadFailed,
    Gated,
    LimitError,
    LocalLLMError,
    NotFound,
    Offline,
)
from localllm.hub.download.part import PartFile
from localllm.hub.download.wire import check_status, content_range, follow, network_errors

PIECE_BYTES = 16 << 20
COMMIT_BYTES = 32 << 20
COMMIT_SECONDS = 5.0
READ_BYTES = 1 << 20
HASH_BYTES = 4 << 20
MAX_WORKERS = 8
PATIENCE = 8
"""Failures in a row, without a byte in between, after which a download gives up (and can be resumed)."""


class Located(Struct, frozen=True, kw_only=True):
    """Where the bytes are right now: a signed URL expires, so this is asked for anew when it is refused.

    ``etag`` and ``size`` identify the file; ``token`` is shown to the URL's own host only.
    """

    url: str
    size: int
    etag: str | None = None
    token: str | None = None


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


class Throttle:
    """A limit in bytes per second over all downloads; None = none. Changed at any time."""

    def __init__(self, bytes_per_second: float | None = None) -> None:
        self.bytes_per_second = bytes_per_second
        self._free_at = 0.0

    async def spend(self, count: int) -> None:
        if not self.bytes_per_second:
            return
        now = asyncio.get_running_loop().time()
        self._free_at = max(self._free_at, now) + count / self.bytes_per_second
        if self._free_at - now > 0.05:
            await asyncio.sleep(self._free_at - now)


class Transfer:
    """One run of one download. ``run`` may be cancelled at any await; progress up to then is kept."""

    def __init__(
        self,
        client: httpx.AsyncClient,
        wanted: Wanted,
        part_path: Path,
        *,
        on_progress: Callable[[Progress], None],
        workers: int = 4,
        throttle: Throttle | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._client = client
        self._wanted = wanted
        self._part_path = part_path
        self._on_progress = on_progress
        self._workers = max(1, min(workers, MAX_WORKERS))
        self._throttle = throttle or Throttle()
        self._sleep = sleep
        self._failures = 0
        self._hashed = 0
        self._digest = hashlib.sha256()
        self._fetched = False
        self._grew = asyncio.Event()
        self._commit_due = asyncio.Event()
        self._ranges_work = asyncio.Event()
        self._part: PartFile
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
        self._part = PartFile(
            self._part_path,
            url=self._located.url.partition("?")[0],
            size=self._located.size,
            etag=self._located.etag,
            sha256=self._wanted.sha256,
        )
        try:
            await self._fetch_all()
            while await self._hash_some():
                self._tell()
            self._check_digest()
        except ChecksumMismatch:
            self._part.discard()
            raise
        except BaseException:
            self._keep()
            raise
        return self._part

    # ------------------------------------------------------------ fetching

    async def _fetch_all(self) -> None:
        pieces = [_Piece(start, end) for start, end in reversed(self._part.ranges.pieces(PIECE_BYTES))]
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
        await anyio.to_thread.run_sync(self._part.commit)

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
                before = piece.at
                try:
                    await self._fetch_piece(piece, pieces)
                except (DownloadFailed, Offline, LimitError) as error:
                    await self._wait_after(error, progressed=piece.at > before)
                except Gated as error:
                    await self._wait_after(error, progressed=piece.at > before)
                    await self._locate_again()

    async def _fetch_piece(self, piece: _Piece, pieces: list[_Piece]) -> None:
        """Fetch what is left of ``piece`` on one connection; its ``at`` says how far it came, also on an error."""
        located = self._located
        headers = {"Range": f"bytes={piece.at}-{piece.end - 1}"}
        if located.etag:
            headers["If-Range"] = located.etag
        async with follow(self._client, located.url, headers=headers, token=located.token) as response:
            if response.status_code == 416:
                raise NotFound(
                    f"{self._wanted.name} is shorter at the source than the source says; pull again later."
                )
            check_status(response, self._wanted.name)
            if response.status_code == 200:
                self._take_whole(response, piece, pieces)
            else:
                self._check_range(response, piece)
                self._ranges_work.set()
            await self._receive(response, piece)

    def _take_whole(self, response: httpx.Response, piece: _Piece, pieces: list[_Piece]) -> None:
        """A 200 to a range: the source ignores ranges or has another file now; from the first byte on, alone."""
        length = response.headers.get("content-length", "")
        if length.isdigit() and int(length) != self._located.size:
            kind = response.headers.get("content-type", "something else")
            raise NotFound(
                f"{response.request.url.host} sent {length} bytes of {kind} instead of {self._wanted.name}.",
                hint="Perhaps the login page of a network, or the file has changed: open the address in a browser.",
            )
        if self._ranges_work.is_set():
            raise DownloadFailed(f"{self._wanted.name} changed at the source while it was fetched.")
        pieces.clear()
        self._part.restart()
        self._hashed, self._digest = 0, hashlib.sha256()
        piece.at, piece.end = 0, self._located.size

    def _check_range(self, response: httpx.Response, piece: _Piece) -> None:
        first, end, total = content_range(response.headers)
        if first != piece.at or end > piece.end or (total is not None and total != self._located.size):
            raise DownloadFailed(f"The source sent other bytes of {self._wanted.name} than were asked for.")

    async def _receive(self, response: httpx.Response, piece: _Piece) -> None:
        with network_errors(str(response.request.url)):
            async for data in response.aiter_raw(READ_BYTES):
                if piece.at + len(data) > piece.end:
                    raise DownloadFailed(f"The source sent more of {self._wanted.name} than was asked for.")
                self._part.write(piece.at, data)
                piece.at += len(data)
                self._failures = 0
                self._grew.set()
                if self._part.unrecorded_bytes >= COMMIT_BYTES:
                    self._commit_due.set()
                self._tell()
                await self._throttle.spend(len(data))
        if piece.at < piece.end:
            raise DownloadFailed(f"The line broke {piece.end - piece.at} bytes early.")

    async def _locate_again(self) -> None:
        """A signed address ran out: ask for a new one; the bytes stay while it is still the same file."""
        fresh = await self._wanted.locate()
        if (fresh.size, fresh.etag) != (self._located.size, self._located.etag):
            self._part.restart()
            raise NotFound(
                f"{self._wanted.name} changed at the source while it was fetched.", hint="Pull again."
            )
        self._located = fresh

    async def _wait_after(self, error: LocalLLMError, *, progressed: bool) -> None:
        self._failures = 1 if progressed else self._failures + 1
        if self._failures >= PATIENCE:
            raise error
        asked = error.retry_after_s if isinstance(error, LimitError) else None
        pause = asked if asked is not None else min(30.0, 0.25 * 2**self._failures) * random.uniform(0.8, 1.2)
        self._tell(note=f"waiting {pause:.0f} s: {error.message}")
        await self._sleep(pause)

    # ------------------------------------------------------------ keeping and checking

    async def _commit_often(self) -> None:
        while True:
            try:
                async with asyncio.timeout(COMMIT_SECONDS):
                    await self._commit_due.wait()
            except TimeoutError:
                pass
            self._commit_due.clear()
            if self._part.unrecorded_bytes:
                await anyio.to_thread.run_sync(self._part.commit)

    async def _hash_along(self) -> None:
        """Hash what is written without a gap, while the rest is still on its way."""
        while not self._fetched:
            await self._grew.wait()
            self._grew.clear()
            while self._part.prefix - self._hashed >= HASH_BYTES:
                await self._hash_some()

    async def _hash_some(self) -> bool:
        """Hash the next stretch of the prefix in a thread; False when there is none."""
        length = min(HASH_BYTES, self._part.prefix - self._hashed)
        if length <= 0:
            return False
        await anyio.to_thread.run_sync(self._hash, self._hashed, length)
        self._hashed += length
        return True

    def _hash(self, offset: int, length: int) -> None:
        self._digest.update(self._part.read(offset, length))

    def _check_digest(self) -> None:
        found, expected = self._digest.hexdigest(), self._wanted.sha256
        if expected is not None and found != expected:
            raise ChecksumMismatch(
                f"{self._wanted.name} arrived with another SHA-256 than promised; it was deleted.",
                hint="Pull again; if it happens twice, the source or the line corrupts it.",
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
        self._on_progress(Progress(self._part.written_bytes, self._located.size, self._hashed, note))


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
