"""A download on disk: ``NAME.part`` with the bytes, ``NAME.state`` with what is known to be in it.

The order makes a crash harmless: bytes are written, then flushed to the disk, and only then recorded, and the record is
replaced by rename. So the state never claims a byte that a power cut could have taken; at worst some bytes are
fetched again. A state that cannot be read, or belongs to another file, is no progress, never an error.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from localllm.core.errors import DiskFull, HubError
from localllm.hub.blobs import sync_folder
from localllm.hub.download.ranges import Range, Ranges

FORMAT = 1


class State(Struct, frozen=True, kw_only=True):
    """What the part file was fetched for; ``done`` are flushed half-open byte ranges."""

    format: int = FORMAT
    url: str
    size: int
    etag: str | None
    sha256: str | None
    done: tuple[tuple[int, int], ...]


class PartFile:
    """One file being fetched. Not for two writers: the caller holds the lock on ``path``.

    ``write``, ``read``, ``commit`` and ``close`` block and are for threads; a thread that was left behind by a
    cancelled task finds the file closed, never another file under its descriptor.
    """

    def __init__(self, path: Path, *, url: str, size: int, etag: str | None, sha256: str | None) -> None:
        """Open or create; earlier progress counts when size and identity (sha256, else etag) are the same.

        Raises:
            HubError: the folder cannot be written.
            DiskFull: not even an empty file fits.
        """
        self.path = path
        self.state_path = path.with_suffix(".state")
        self._identity = State(url=url, size=size, etag=etag, sha256=sha256, done=())
        self._users = threading.Condition()
        self._in_use = 0
        self._recording = threading.Lock()
        self._seeking = threading.Lock()
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
            self._descriptor = os.open(path, flags, 0o600)
        self._recorded = Ranges(size, self._read_state())
        self._written = Ranges(size, self._recorded)

    @property
    def written_bytes(self) -> int:
        """Bytes written in all, flushed or not."""
        return self._written.covered

    @property
    def unrecorded_bytes(self) -> int:
        return self._written.covered - self._recorded.covered

    @property
    def prefix(self) -> int:
        """Bytes written from the beginning on without a gap (what may be hashed already)."""
        return self._written.prefix

    def pieces(self, size: int) -> list[Range]:
        """What is missing, in pieces of at most ``size`` bytes."""
        return self._written.pieces(size)

    def write(self, offset: int, data: bytes) -> None:
        """Write at ``offset``; it counts from ``mark`` on."""
        view = memoryview(data)
        with self._used() as descriptor, disk_errors(self.path):
            while view:
                count = self._write_at(descriptor, view, offset)
                offset, view = offset + count, view[count:]

    def mark(self, start: int, end: int) -> None:
        """Say that [start, end) was written; recorded by the next ``commit``."""
        self._written.add(start, end)

    def read(self, offset: int, length: int) -> bytes:
        with self._used() as descriptor, disk_errors(self.path):
            return self._read_at(descriptor, length, offset)

    def commit(self) -> None:
        """Flush what was written and record it."""
        with self._recording:
            written, done = self._written, tuple(self._written)
            with self._used() as descriptor, disk_errors(self.path):
                os.fsync(descriptor)
                self._write_state(done)
            if self._written is written:
                self._recorded = Ranges(self._identity.size, done)

    def restart(self) -> None:
        """Forget all progress: the source has another file now, or can only send the whole."""
        with self._recording:
            self._recorded = Ranges(self._identity.size)
            self._written = Ranges(self._identity.size)
            self.state_path.unlink(missing_ok=True)
            with self._used() as descriptor, disk_errors(self.path):
                os.ftruncate(descriptor, 0)

    def close(self) -> None:
        """Wait for threads that are at it, and close."""
        with self._users:
            descriptor, self._descriptor = self._descriptor, -1
            self._users.wait_for(lambda: self._in_use == 0)
        if descriptor >= 0:
            os.close(descriptor)

    def discard(self) -> None:
        """Close and delete everything."""
        self.close()
        self.path.unlink(missing_ok=True)
        self.state_path.unlink(missing_ok=True)

    def publish(self, target: Path) -> None:
        """Close the complete, verified file and rename it to ``target``; durable when this returns."""
        with disk_errors(self.path):
            with self._used() as descriptor:
                os.ftruncate(descriptor, self._identity.size)
                os.fsync(descriptor)
            self.close()
            self.path.chmod(0o400)
            self.path.rename(target)
            sync_folder(target.parent)
        self.state_path.unlink(missing_ok=True)

    def _write_at(self, descriptor: int, data: memoryview, offset: int) -> int:
        if hasattr(os, "pwrite"):
            return os.pwrite(descriptor, data, offset)
        with self._seeking:
            os.lseek(descriptor, offset, os.SEEK_SET)
            return os.write(descriptor, data)

    def _read_at(self, descriptor: int, length: int, offset: int) -> bytes:
        if hasattr(os, "pread"):
            return os.pread(descriptor, length, offset)
        with self._seeking:
            os.lseek(descriptor, offset, os.SEEK_SET)
            return os.read(descriptor, length)

    @contextmanager
    def _used(self) -> Iterator[int]:
        with self._users:
            descriptor = self._descriptor
            if descriptor < 0:
                raise HubError(f"{self.path.name} was closed.")
            self._in_use += 1
        try:
            yield descriptor
        finally:
            with self._users:
                self._in_use -= 1
                self._users.notify_all()

    def _read_state(self) -> tuple[tuple[int, int], ...]:
        try:
            state = msgspec.json.decode(self.state_path.read_bytes(), type=State)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return ()
        wanted = self._identity
        same = state.sha256 == wanted.sha256 if wanted.sha256 else state.etag == wanted.etag is not None
        if state.format != FORMAT or state.size != wanted.size or not same:
            return ()
        on_disk = os.fstat(self._descriptor).st_size
        valid = all(0 <= start <= end <= min(state.size, on_disk) for start, end in state.done)
        return state.done if valid else ()

    def _write_state(self, done: tuple[tuple[int, int], ...]) -> None:
        state = msgspec.structs.replace(self._identity, done=done)
        beside = self.state_path.with_suffix(".state-new")
        with beside.open("wb") as file:
            file.write(msgspec.json.encode(state))
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.state_path)


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Name what the disk said; the part is kept, so that a download goes on once there is room."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"The disk of {path.parent} is full; what was downloaded so far is kept.",
                hint="Free some space and pull again: it goes on where it stopped.",
            ) from error
        raise HubError(
            f"{path} cannot be written: {error.strerror}.", hint="Check its permissions."
        ) from error
