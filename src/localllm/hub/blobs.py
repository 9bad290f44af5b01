"""Content-addressed files: a file's name is its SHA-256, so what is there is complete and never changes.

A blob is written under a temporary name, flushed to disk, and renamed when its digest is known; an existing blob is
never opened for writing (llama.cpp maps it: overwriting a mapped model yields garbage without an error). A split
model is one folder of files, because llama.cpp finds the other parts by the name of the first.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Literal

from localllm.core.errors import Conflict, DiskFull, GGUFError, HubError, NotFound
from localllm.core.units import format_bytes

Progress = Callable[[int, int], None]
"""Called with (bytes done, bytes in all), about every 4 MiB."""

_CHUNK_BYTES = 4 << 20
_HEX_DIGEST = re.compile(r"[0-9a-f]{64}")
_STALE_SECONDS = 24 * 3600.0


@contextmanager
def open_regular(path: Path) -> Iterator[FileIO]:
    """``path`` opened for reading if it is a regular file.

    Opened without blocking and looked at afterwards, so a FIFO cannot hang us and nothing can be swapped in between.
    Raises NotFound, GGUFError (a folder, a FIFO, a device) or HubError (no permission).
    """
    flags = (
        os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    )
    try:
        descriptor = os.open(path, flags)
    except FileNotFoundError as error:
        raise NotFound(f"There is no file at {path}.", hint="Check the path.", param="path") from error
    except OSError as error:
        raise HubError(
            f"{path} cannot be opened: {error.strerror}.", hint="Check its permissions."
        ) from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise GGUFError(f"{path} is not a regular file.", hint="Name the .gguf file itself.", param="path")
    with FileIO(descriptor, "rb") as file:
        yield file


def sha256_of(path: Path, on_progress: Callable[[int], None] | None = None) -> str:
    """Hex digest of a regular file; ``on_progress`` gets the bytes of each step."""
    with open_regular(path) as source:
        return _hash(source, None, on_progress)


class Staged:
    """Files that are complete under a temporary name; ``adopt`` makes them a blob."""

    def __init__(self, temporary: Path, final: Path, digests: tuple[str, ...]) -> None:
        self.digests = digests
        self._temporary = temporary
        self._final = final

    def adopt(self) -> None:
        """Give the files their final name, unless the same blob is here already; that one is left untouched."""
        if not self._final.exists():
            self._temporary.rename(self._final)
            sync_folder(self._final.parent)


class Blobs:
    """The folder ``store/blobs``."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, digest: str) -> Path:
        """Where the blob of this hex digest lies. Raises HubError for anything but 64 hex digits."""
        if not _HEX_DIGEST.fullmatch(digest):
            raise HubError(f"{digest[:80]!r} is not a SHA-256 digest.")
        return self.root / f"sha256-{digest}"

    def set_path(self, digests: Sequence[str], number: int = 1) -> Path:
        """Where part ``number`` of a split model lies; the folder is named by all its parts' digests."""
        together = hashlib.sha256("\n".join(digests).encode()).hexdigest()
        return self.path(together) / f"model-{number:05d}-of-{len(digests):05d}.gguf"

    @contextmanager
    def staged(
        self, sources: Sequence[Path], *, mode: Literal["copy", "link"], on_progress: Progress | None = None
    ) -> Iterator[Staged]:
        """One file, or the parts of a split model in order, under a temporary name that goes at the end of the block.

        ``link`` makes hard links, which needs the same disk. Raises DiskFull before the first byte or in the middle,
        Conflict when a hard link is impossible, HubError when the disk refuses otherwise.
        """
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._sweep()
        meter = _Meter(sum(source.stat().st_size for source in sources), on_progress)
        if mode == "copy":
            require_space(self.root, meter.total)
        temporary = self.root / f".partial-{secrets.token_hex(8)}"
        try:
            with _disk_errors(self.root):
                yield self._stage(sources, temporary, mode, meter)
        finally:
            _discard(temporary)

    def first_files(self) -> Iterator[Path]:
        """The file of each blob; of a split model, the first part."""
        for blob in self.root.glob("sha256-*"):
            yield from (blob,) if blob.is_file() else sorted(blob.glob("model-00001-of-*.gguf"))

    def adopt_file(self, source: Path, target: Path) -> None:
        """Move a complete, verified file of this disk to its place; one that is there already is left untouched.

        ``source`` may be that place itself. Raises HubError when the disk refuses or neither exists.
        """
        with _disk_errors(self.root):
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not target.exists():
                source.rename(target)
                sync_folder(target.parent)
            elif source != target:
                source.unlink(missing_ok=True)

    def remove(self, path: Path) -> int:
        """Delete the blob that ``path`` is or lies in; the bytes that this freed (a hard link frees none)."""
        target = path if path.parent == self.root else path.parent
        if target.parent != self.root:
            raise HubError(f"{path} is not in the store.")
        files = [target] if target.is_file() else list(target.glob("*.gguf"))
        freed = sum(info.st_size for info in (file.stat() for file in files) if info.st_nlink == 1)
        _discard(target)
        return freed

    def _stage(
        self, sources: Sequence[Path], temporary: Path, mode: Literal["copy", "link"], meter: _Meter
    ) -> Staged:
        if len(sources) == 1:
            digest = _take(sources[0], temporary, mode, meter)
            return Staged(temporary, self.path(digest), (digest,))
        temporary.mkdir(mode=0o700)
        digests = tuple(
            _take(source, temporary / f"model-{number:05d}-of-{len(sources):05d}.gguf", mode, meter)
            for number, source in enumerate(sources, start=1)
        )
        return Staged(temporary, self.set_path(digests).parent, digests)

    def _sweep(self) -> None:
        """Remove what an import that was killed has left, once nothing can still be writing it."""
        for leftover in self.root.glob(".partial-*"):
            with suppress(FileNotFoundError):
                if time.time() - leftover.stat().st_mtime > _STALE_SECONDS:
                    _discard(leftover)


def disk_room(folder: Path) -> tuple[int, int]:
    """(bytes free, bytes of those that are kept in reserve: 1 GiB or 2 % of the disk) where ``folder`` is or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    usage = shutil.disk_usage(folder)
    return usage.free, min(max(1 << 30, usage.total // 50), usage.total // 10)


def require_space(folder: Path, needed_bytes: int) -> None:
    """Raise DiskFull when writing ``needed_bytes`` would leave less than the reserve."""
    free, reserve = disk_room(folder)
    if needed_bytes > free - reserve:
        raise DiskFull(
            f"The disk of {folder} has {format_bytes(free)} free; the model needs {format_bytes(needed_bytes)}"
            f" and {format_bytes(reserve)} are kept in reserve.",
            hint="Free some space, or import with --link (same disk) or --reference (leaves the file where it is).",
            details={"needed_bytes": needed_bytes, "free_bytes": free, "reserve_bytes": reserve},
        )


class _Meter:
    def __init__(self, total: int, on_progress: Progress | None) -> None:
        self.total = total
        self._done = 0
        self._on_progress = on_progress

    def add(self, count: int) -> None:
        self._done += count
        if self._on_progress:
            self._on_progress(min(self._done, self.total), self.total)


def _take(source: Path, target: Path, mode: Literal["copy", "link"], meter: _Meter) -> str:
    if mode == "link":
        try:
            target.hardlink_to(source)
        except OSError as error:
            if error.errno in (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EMLINK):
                raise Conflict(
                    f"{source} cannot be hard-linked into the store: {error.strerror}.",
                    hint="Hard links need both on one disk; import it by copy, or with --reference.",
                ) from error
            raise
        return sha256_of(target, meter.add)
    with open_regular(source) as reader, FileIO(target, "xb") as writer:
        digest = _hash(reader, writer, meter.add)
        os.fsync(writer.fileno())
    target.chmod(0o400)
    return digest


def _hash(source: FileIO, copy_to: FileIO | None, on_progress: Callable[[int], None] | None) -> str:
    digest = hashlib.sha256()
    buffer = bytearray(_CHUNK_BYTES)
    view = memoryview(buffer)
    while count := source.readinto(buffer):
        digest.update(view[:count])
        if copy_to is not None:
            written = 0
            while written < count:
                written += copy_to.write(view[written:count])
        if on_progress:
            on_progress(count)
    return digest.hexdigest()


@contextmanager
def _disk_errors(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"The disk of {folder} is full; the import was undone.", hint="Free some space and try again."
            ) from error
        raise HubError(f"The store at {folder} cannot be written: {error.strerror}.") from error


def _discard(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make a rename in ``folder`` survive a power cut; a system that cannot do that is left alone."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
