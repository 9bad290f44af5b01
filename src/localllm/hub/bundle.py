"""A model in one .tar, for machines without a network: all its files, and a note of what the store knows about it.

``model.json`` comes first, so that a reader knows every name, size and digest before the first byte of weights; a
bundle that has anything else in it, or in another order, is refused. Nothing is compressed: weights do not shrink.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

import msgspec
from msgspec import Struct

from localllm.core.errors import BadName, ChecksumMismatch, Conflict, DiskFull, GGUFError, HubError
from localllm.core.generation import Sampling
from localllm.hub.blobs import open_regular, require_space
from localllm.hub.names import parse_name
from localllm.hub.store import Store, StoredModel

FORMAT = 1
MAX_NOTE_BYTES = 16 << 20
MAX_FILES = 1_000
_NOTE = "model.json"
_CHUNK_BYTES = 4 << 20

Progress = Callable[[int, int], None]


class BundledFile(Struct, frozen=True, kw_only=True):
    name: str
    size_bytes: int
    sha256: str


class Note(Struct, frozen=True, kw_only=True):
    """What the store knew about the model. ``files`` are its parts in order, the projector last if there is one."""

    format: int
    name: str
    files: tuple[BundledFile, ...]
    projector: bool = False
    chat_template: str | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    licence: str | None = None
    source: str | None = None


def write_bundle(store: Store, name: str, target: Path, on_progress: Progress | None = None) -> StoredModel:
    """Write the model to ``target``, which must not exist.

    Raises:
        Conflict: something is at ``target`` already, or the model's files were left elsewhere (no digests).
        DiskFull, HubError: the disk refuses; no half a bundle is left.
        ModelNotFound, ModelAmbiguous: as ``Store.get``.
    """
    model = store.get(name)
    manifest = store.manifest(model.name)
    if manifest is None or model.problem or any(entry.sha256 is None for entry in manifest.entries):
        raise Conflict(
            f"{model.name} cannot be bundled: {model.problem or 'its file was imported by reference'}.",
            hint="Import it by copy first; a bundle carries the digests of what is in the store.",
        )
    count = len(manifest.files)
    names = [f"model-{n:05d}-of-{count:05d}.gguf" if count > 1 else "model.gguf" for n in range(1, count + 1)]
    names += ["mmproj.gguf"] if manifest.mmproj else []
    files = tuple(
        BundledFile(name=each, size_bytes=entry.size_bytes, sha256=entry.sha256 or "")
        for each, entry in zip(names, manifest.entries, strict=True)
    )
    note = Note(
        format=FORMAT,
        name=model.name,
        files=files,
        projector=manifest.mmproj is not None,
        chat_template=model.chat_template,
        stop=model.stop,
        sampling=model.sampling,
        licence=model.licence,
        source=model.source,
    )
    require_space(target.absolute().parent, sum(file.size_bytes for file in files))
    meter = _Meter(sum(file.size_bytes for file in files), on_progress)
    with _new_file(target) as out, tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        _add(tar, _NOTE, io.BytesIO(content := msgspec.json.encode(note)), len(content))
        for file, path in zip(files, store.places(manifest), strict=True):
            with open_regular(path) as source:
                _add(tar, file.name, meter.wrap(source), file.size_bytes)
    return model


def export_files(store: Store, name: str, folder: Path, on_progress: Progress | None = None) -> list[Path]:
    """Copy the model's GGUF files into ``folder`` under names that other tools understand.

    Raises:
        Conflict: a file of that name is there already, or the model cannot be read.
        DiskFull, HubError: the disk refuses; no half a file is left.
        ModelNotFound, ModelAmbiguous: as ``Store.get``.
    """
    model = store.get(name)
    manifest = store.manifest(model.name)
    if manifest is None or model.problem:
        raise Conflict(f"{model.name} cannot be exported: {model.problem}")
    stem = model.name.rpartition("/")[2].replace(":", "-")
    count = len(manifest.files)
    names = [
        f"{stem}-{n:05d}-of-{count:05d}.gguf" if count > 1 else f"{stem}.gguf" for n in range(1, count + 1)
    ]
    names += [f"mmproj-{stem}.gguf"] if manifest.mmproj else []
    total = sum(entry.size_bytes for entry in manifest.entries)
    require_space(folder.absolute(), total)
    meter = _Meter(total, on_progress)
    targets = [folder / each for each in names]
    for target, path in zip(targets, store.places(manifest), strict=True):
        with open_regular(path) as source, _new_file(target) as out:
            while block := source.read(_CHUNK_BYTES):
                out.write(block)
                meter.add(len(block))
    return targets


def read_bundle(source: Path, folder: Path, on_progress: Progress | None = None) -> Note:
    """Unpack into ``folder``, every file compared with its digest while it is written.

    Raises:
        GGUFError: it is no bundle, or has anything in it that its note does not name.
        ChecksumMismatch: a file is not what the note says.
        DiskFull, HubError.
    """
    try:
        with open_regular(source) as raw, tarfile.open(fileobj=raw, mode="r:") as tar:
            note = _read_note(tar)
            require_space(folder, sum(file.size_bytes for file in note.files))
            meter = _Meter(sum(file.size_bytes for file in note.files), on_progress)
            for file in note.files:
                member = tar.next()
                if (
                    member is None
                    or not member.isreg()
                    or (member.name, member.size) != (file.name, file.size_bytes)
                ):
                    raise GGUFError(f"{source.name} does not have {file.name} where its note says.")
                content = tar.extractfile(member)
                if content is None:
                    raise GGUFError(f"{source.name} does not have {file.name}.")
                _unpack(content, folder / file.name, file, meter)
            if tar.next() is not None:
                raise GGUFError(f"{source.name} has more in it than its note says.")
            return note
    except tarfile.TarError as error:
        raise GGUFError(
            f"{source.name} is not a bundle: {error}.", hint="Make one with: localllm bundle"
        ) from error


def _read_note(tar: tarfile.TarFile) -> Note:
    member = tar.next()
    if member is None or member.name != _NOTE or not member.isreg() or member.size > MAX_NOTE_BYTES:
        raise GGUFError(
            "The archive does not begin with the note of a bundle.", hint="Make one with: localllm bundle"
        )
    content = tar.extractfile(member)
    try:
        note = msgspec.json.decode(content.read() if content else b"", type=Note)
        parse_name(note.name)
    except (msgspec.MsgspecError, UnicodeDecodeError, BadName) as error:
        raise GGUFError(f"The bundle's note cannot be read: {error}.") from error
    count = len(note.files) - note.projector
    expected = [
        f"model-{n:05d}-of-{count:05d}.gguf" if count > 1 else "model.gguf" for n in range(1, count + 1)
    ]
    expected += ["mmproj.gguf"] if note.projector else []
    if note.format > FORMAT or not 0 < count <= MAX_FILES or [file.name for file in note.files] != expected:
        raise GGUFError("The bundle's note names other files than a bundle has.")
    return note


def _unpack(content: IO[bytes], target: Path, file: BundledFile, meter: _Meter) -> None:
    digest = hashlib.sha256()
    with _new_file(target) as out:
        while block := content.read(_CHUNK_BYTES):
            digest.update(block)
            out.write(block)
            meter.add(len(block))
    if digest.hexdigest() != file.sha256:
        target.unlink(missing_ok=True)
        raise ChecksumMismatch(f"{file.name} in the bundle is damaged: its SHA-256 differs.")


def _add(tar: tarfile.TarFile, name: str, content: IO[bytes], size: int) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    tar.addfile(member, content)


@contextmanager
def _new_file(path: Path) -> Iterator[IO[bytes]]:
    """A file that must not exist yet; durable at the end, gone when something goes wrong."""
    try:
        file = path.open("xb")
    except FileExistsError as error:
        raise Conflict(f"{path} exists already.", hint="Choose another name, or delete it.") from error
    except OSError as error:
        raise HubError(f"{path} cannot be written: {error.strerror}.") from error
    try:
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        with suppress(OSError):
            path.unlink()
        if isinstance(error, OSError):
            raise DiskFull(f"{path} cannot be written: {error.strerror}.") from error
        raise


class _Meter:
    def __init__(self, total: int, on_progress: Progress | None) -> None:
        self._total = total
        self._done = 0
        self._on_progress = on_progress

    def add(self, count: int) -> None:
        self._done += count
        if self._on_progress:
            self._on_progress(self._done, self._total)

    def wrap(self, source: IO[bytes]) -> IO[bytes]:
        return _Counted(source, self)  # type: ignore[return-value]


class _Counted:
    """What ``tarfile`` reads a member from: counts on the way."""

    def __init__(self, source: IO[bytes], meter: _Meter) -> None:
        self._source = source
        self._meter = meter

    def read(self, size: int = -1) -> bytes:
        data = self._source.read(size)
        self._meter.add(len(data))
        return data
