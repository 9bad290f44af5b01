"""A whole model: its files fetched one after another, verified, and only then put into the store, the manifest last.

A job keeps nothing in memory that matters: run it again after any end and it finds what is there, in the store, in
finished files named by their digest, and in part files.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncIterator, Callable, Collection
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import msgspec
from filelock import FileLock, Timeout
from msgspec import Struct

from localllm.core.errors import ChecksumMismatch, Conflict, DiskFull, GGUFError
from localllm.core.facts import facts_from_header
from localllm.core.units import format_bytes
from localllm.hub.blobs import disk_room
from localllm.hub.download.throttle import Throttle
from localllm.hub.download.transfer import Progress, Transfer, Wanted
from localllm.hub.foreign import foreign_reason
from localllm.hub.gguf_file import join_headers, read_part
from localllm.hub.manifest import FORMAT, FileEntry, Manifest
from localllm.hub.pull_plan import PullPlan, Sources
from localllm.hub.sources.base import RemoteFile
from localllm.hub.store import Store, StoredModel

LOCK_SECONDS = 0.5
MISMATCHES_FORGIVEN = 1


class JobProgress(Struct, frozen=True):
    """``done`` of ``total`` bytes are here. ``stage`` says what is being done, ``note`` what is being waited for."""

    done: int
    total: int
    stage: str
    note: str | None = None


@dataclass(frozen=True, kw_only=True)
class Workshop:
    """What all jobs share. ``disk`` is a pool of threads; ``turns`` has one lock per file that anyone fetches."""

    store: Store
    sources: Sources
    client: httpx.AsyncClient
    disk: Executor
    throttle: Throttle
    workers: int = 4
    turns: dict[str, asyncio.Lock] = field(default_factory=dict)

    @property
    def folder(self) -> Path:
        """Part files and finished ones lie on the store's disk, so that taking them in is a rename."""
        return self.store.root / "downloads"


class Job:
    """One pull of one model."""

    def __init__(
        self, workshop: Workshop, plan: PullPlan, on_progress: Callable[[JobProgress], None]
    ) -> None:
        self._shop = workshop
        self._plan = plan
        self._tell = on_progress
        self._done_before = 0

    async def run(self) -> StoredModel:
        """Fetch what is missing and put the model into the store.

        Raises:
            DiskFull: before the first byte, or when the disk fills up; what is here is kept.
            ChecksumMismatch: twice another content than promised.
            GGUFError: what was fetched is no model.
            Conflict: the name belongs to another model by now.
            Gated, NotFound, Offline, RateLimited, DownloadFailed, HubError: what is here is kept for the next try.
        """
        here = await asyncio.to_thread(self._already_here)
        if here is not None:
            return here
        fetched: list[tuple[Path, str]] = []
        for file in self._plan.all_files:
            fetched.append(await self._obtain(file))
            self._done_before += file.size_bytes
        self._tell(JobProgress(self._plan.size_bytes, self._plan.size_bytes, "putting it into the store"))
        return await asyncio.to_thread(self._publish, fetched)

    def missing_bytes(self) -> int:
        """What the disk still has to take: bytes that are neither in the store nor in a part file. Blocks."""
        return sum(self._missing(file) for file in self._plan.all_files)

    def discard(self, *, but: Collection[RemoteFile] = ()) -> None:
        """Delete what was fetched and is not in the store, except files that other jobs want. Blocks.

        Only while the job does not run.
        """
        wanted = {key_of(file) for file in but}
        for key in {key_of(file) for file in self._plan.all_files} - wanted:
            for path in self._shop.folder.glob(f"{key}.*"):
                path.unlink(missing_ok=True)

    # ------------------------------------------------------------ one file

    async def _obtain(self, file: RemoteFile) -> tuple[Path, str]:
        """The complete file's path (in the downloads folder, or its place in the store) and its digest."""
        async with self._turn(file):
            place = await asyncio.to_thread(self._find, file)
            if place is not None and file.sha256 is not None:
                return place, file.sha256
            mismatches = 0
            while True:
                try:
                    return await self._fetch(file)
                except ChecksumMismatch:
                    mismatches += 1
                    if mismatches > MISMATCHES_FORGIVEN:
                        raise
                    self._say("fetching it once more: it arrived damaged")

    async def _fetch(self, file: RemoteFile) -> tuple[Path, str]:
        part = self._shop.folder / f"{key_of(file)}.part"
        transfer = Transfer(
            self._shop.client,
            Wanted(name=file.name, sha256=file.sha256, locate=lambda: self._shop.sources.locate(file)),
            part,
            on_progress=self._on_transfer,
            disk=self._shop.disk,
            workers=self._shop.workers,
            throttle=self._shop.throttle,
        )
        complete = await transfer.run()
        finished = self._shop.folder / f"{key_of(file)}.done"
        await asyncio.get_running_loop().run_in_executor(self._shop.disk, complete.publish, finished)
        return finished, transfer.sha256

    def _find(self, file: RemoteFile) -> Path | None:
        """A file that needs no fetching: it is in its place, or an earlier run finished it."""
        if file.sha256 is None:
            return None
        for path in (self._place(file), self._shop.folder / f"{key_of(file)}.done"):
            if path is not None and path.is_file() and path.stat().st_size == file.size_bytes:
                return path
        return None

    def _missing(self, file: RemoteFile) -> int:
        if self._find(file) is not None:
            return 0
        try:
            status = (self._shop.folder / f"{key_of(file)}.part").stat()
        except OSError:
            return file.size_bytes
        # a part file is sparse: its length says nothing about what the disk has given it
        held = getattr(status, "st_blocks", 0) * 512
        return max(0, file.size_bytes - held)

    def _place(self, file: RemoteFile) -> Path | None:
        """Where the file belongs in the store; None while a digest is not known."""
        if any(each.sha256 is None for each in self._plan.all_files):
            return None
        places = self._shop.store.places(self._manifest([each.sha256 or "" for each in self._plan.all_files]))
        return places[self._plan.all_files.index(file)]

    @asynccontextmanager
    async def _turn(self, file: RemoteFile) -> AsyncIterator[None]:
        """One at a time per file: a second pull of it waits, and then finds it done. Other processes count too."""
        key = key_of(file)
        turn = self._shop.turns.setdefault(key, asyncio.Lock())
        if turn.locked():
            self._say("waiting: another pull is fetching the same file")
        async with turn:
            await asyncio.to_thread(self._shop.folder.mkdir, parents=True, exist_ok=True, mode=0o700)
            lock = FileLock(self._shop.folder / f"{key}.lock", timeout=0)
            while True:
                try:
                    lock.acquire()
                    break
                except Timeout:
                    self._say("waiting: another localllm is fetching the same file")
                    await asyncio.sleep(LOCK_SECONDS)
            try:
                yield
            finally:
                lock.release()

    # ------------------------------------------------------------ the whole

    def _already_here(self) -> StoredModel | None:
        """The model, when it is in the store as planned. Raises Conflict when its name is another model's."""
        before = self._shop.store.manifest(self._plan.name)
        if before is None:
            return None
        planned = [file.sha256 for file in self._plan.all_files]
        if planned == [entry.sha256 for entry in before.entries] and None not in planned:
            model = self._shop.store.get(self._plan.name)
            if model.problem is None:
                return model
        if (before.source or "").partition("@")[0] != self._plan.origin.partition("@")[0]:
            raise Conflict(
                f"The store has a model called {before.name} already, from {before.source or 'elsewhere'}.",
                hint=f"Remove that one first: localllm rm {before.name}",
                param="name",
            )
        return None

    def _publish(self, fetched: list[tuple[Path, str]]) -> StoredModel:
        manifest = self._manifest([digest for _, digest in fetched])
        places = self._shop.store.places(manifest)
        # another pull of the same file may have put it into the store meanwhile
        paths = [place if place.exists() else path for place, (path, _) in zip(places, fetched, strict=True)]
        headers = [read_part(path) for path in paths[: len(self._plan.files)]]
        header = headers[0] if len(headers) == 1 else join_headers(self._plan.name, headers)
        if (reason := foreign_reason(header)) is not None:
            raise GGUFError(
                f"{self._plan.name} cannot run here: {reason}.", hint="Run it with Ollama itself."
            )
        facts = facts_from_header(header)
        manifest = msgspec.structs.replace(
            manifest,
            quant=facts.quant or self._plan.quant,
            architecture=facts.architecture,
            parameters=facts.parameters,
            trained_context_length=facts.trained_context_length,
            capabilities=facts.capabilities,
            chat_template=self._plan.chat_template,
            stop=self._plan.stop,
            sampling=self._plan.sampling,
            licence=self._plan.licence or facts.licence,
            source=self._plan.origin,
            added_at=time.time(),
        )
        model = self._shop.store.publish(manifest, paths)
        for path, _ in fetched:
            if path not in places:
                path.unlink(missing_ok=True)  # the other pull's copy was first
        return model

    def _manifest(self, digests: list[str]) -> Manifest:
        """The manifest as far as it decides where files lie."""
        entries = [
            FileEntry(size_bytes=file.size_bytes, sha256=digest)
            for file, digest in zip(self._plan.all_files, digests, strict=True)
        ]
        count = len(self._plan.files)
        return Manifest(
            format=FORMAT,
            name=self._plan.name,
            files=tuple(entries[:count]),
            mmproj=entries[count] if self._plan.projector else None,
            added_at=0.0,
        )

    def _on_transfer(self, progress: Progress) -> None:
        verifying = progress.done == progress.total
        self._tell(
            JobProgress(
                self._done_before + progress.done,
                self._plan.size_bytes,
                f"verifying {progress.verified / progress.total:.0%}"
                if verifying and progress.total
                else "downloading",
                progress.note,
            )
        )

    def _say(self, note: str) -> None:
        self._tell(JobProgress(self._done_before, self._plan.size_bytes, "waiting", note))


def require_room(folder: Path, needed_bytes: int, others_bytes: int) -> None:
    """Raise DiskFull when a pull of ``needed_bytes``, beside what other pulls still need, would leave no reserve."""
    free, reserve = disk_room(folder)
    if needed_bytes + others_bytes > free - reserve:
        beside = f" beside {format_bytes(others_bytes)} for other downloads" if others_bytes else ""
        raise DiskFull(
            f"The disk of {folder} has {format_bytes(free)} free; this needs {format_bytes(needed_bytes)}{beside},"
            f" and {format_bytes(reserve)} are kept in reserve.",
            hint="Free some space (localllm rm MODEL), or choose a smaller quantisation with --quant.",
            details={
                "needed_bytes": needed_bytes + others_bytes,
                "free_bytes": free,
                "reserve_bytes": reserve,
            },
        )


def sweep(folder: Path, kept: Collection[str]) -> int:
    """Delete files of ``folder`` whose key is not ``kept``; the bytes that the disk gets back."""
    freed = 0
    for path in folder.glob("*.*"):
        if path.stem in kept:
            continue
        status = path.stat()
        freed += getattr(status, "st_blocks", 0) * 512
        path.unlink(missing_ok=True)
    return freed


def key_of(file: RemoteFile) -> str:
    """The name of the file's parts on disk: by content where that is known, else by address."""
    return file.sha256 or "url-" + hashlib.sha256(file.url.encode()).hexdigest()
