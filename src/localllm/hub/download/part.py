"""A download on disk: ``NAME.part`` with the bytes, ``NAME.state`` with what is known to be in it.

The order makes a crash harmless: bytes are written, then flushed to the disk, and only then recorded, and the record is
replaced by rename. So the state never claims a byte that a power cut could have taken; at worst some bytes are
fetched again. A state that cannot be read, or belongs to another file, is no progress, never an error.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from localllm.core.errors import DiskFull, DownloadFailed
from localllm.hub.blobs import sync_folder
from localllm.hub.download.ranges import Ranges

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
    """One file being fetched. Not for two writers: the caller holds the lock on ``path``."""

    def __init__(self, path: Path, *, url: str, size: int, etag: str | None, sha256: str | None) -> None:
        """Open or create; earlier progress counts when size and identity (sha256, else etag) are the same.

        Raises:
            DownloadFailed: the folder cannot be written.
            DiskFull: not even an empty file fits.
        """
        self.path = path
        self.state_path = path.with_suffix(".state")
        self._identity = State(url=url, size=size, etag=etag, sha256=sha256, done=())
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with disk_errors(path):
            flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
            self._descriptor = os.open(path, flags, 0o600)
        self.ranges = Ranges(size, self._recorded())
        self._written = Ranges(size, self.ranges)

    @property
    def resumed_bytes(self) -> int:
        return self.ranges.covered

    @property
    def written_bytes(self) -> int:
        """Bytes written in all, flushed or not."""
        return self._written.covered

    @property
    def unrecorded_bytes(self) -> int:
        return self._written.covered - self.ranges.covered

    @property
    def prefix(self) -> int:
        """Bytes written from the beginning on without a gap (what may be hashed already)."""
        return self._written.prefix

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write at ``offset``; recorded by the next ``commit``."""
        view = memoryview(data)
        at = offset
        with disk_errors(self.path):
            while view:
                count = os.pwrite(self._descriptor, view, at)
                at, view = at + count, view[count:]
        self._written.add(offset, at)

    def read(self, offset: int, length: int) -> bytes:
        return os.pread(self._descriptor, length, offset)

    def commit(self) -> None:
        """Flush what was written and record it. Blocks for as long as the disk takes; call it in a thread."""
        done = tuple(self._written)
        with disk_errors(self.path):
            os.fsync(self._descriptor)
            self._record(done)
        for start, end in done:
            self.ranges.add(start, end)

    def restart(self) -> None:
        """Forget all progress: the file at the source is another one now."""
        self.ranges = Ranges(self._identity.size)
        self._written = Ranges(self._identity.size)
        self.state_path.unlink(missing_ok=True)
        os.ftruncate(self._descriptor, 0)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def discard(self) -> None:
        """Close and delete everything."""
        self.close()
        self.path.unlink(missing_ok=True)
        self.state_path.unlink(missing_ok=True)

    def publish(self, target: Path) -> None:
        """Close the complete, verified file and rename it to ``target``; durable when this returns."""
        with disk_errors(self.path):
            os.ftruncate(self._descriptor, self._identity.size)
            os.fsync(self._descriptor)
            self.close()
            self.path.rename(target)
            sync_folder(target.parent)
        self.state_path.unlink(missing_ok=True)

    def _recorded(self) -> tuple[tuple[int, int], ...]:
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

    def _record(self, done: tuple[tuple[int, int], ...]) -> None:
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
        raise DownloadFailed(f"{path} cannot be written: {error.strerror}.") from error
