"""Manifests: what the store knows about each model, one small JSON file each.

A manifest is replaced by rename and never edited, so a reader sees the old one or the new one. One that cannot be
read (a broken disk, an editor, a later version) costs that model, with a sentence about it, and never the others.
"""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from localllm.core.errors import HubError, StoreCorrupt
from localllm.core.generation import Sampling
from localllm.hub.blobs import sync_folder
from localllm.hub.names import ModelName, parse_name

FORMAT = 1
MAX_MANIFEST_BYTES = 4 << 20


class FileEntry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One file: in the store by ``sha256`` (hex), or elsewhere at ``path`` with the mtime it had when it was imported."""

    size_bytes: int
    sha256: str | None = None
    path: str | None = None
    modified_ns: int | None = None


class Manifest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """``files`` are the model's parts in order. ``chat_template`` and ``sampling`` are set where the file's own will not do."""

    format: int
    name: str
    files: tuple[FileEntry, ...]
    mmproj: FileEntry | None = None
    quant: str | None = None
    architecture: str | None = None
    parameters: int | None = None
    trained_context_length: int | None = None
    capabilities: tuple[str, ...] = ()
    chat_template: str | None = None
    stop: tuple[str, ...] = ()
    sampling: Sampling = Sampling()
    licence: str | None = None
    source: str | None = None
    added_at: float

    @property
    def entries(self) -> tuple[FileEntry, ...]:
        """Every file, the projector last."""
        return self.files if self.mmproj is None else (*self.files, self.mmproj)


class Manifests:
    """The folder ``store/manifests``; a file's name is the model's, percent-encoded and in lower case."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def read(self, name: ModelName) -> Manifest | None:
        """Raises StoreCorrupt when it is there and cannot be read."""
        path = self._path(name.key)
        try:
            return _decode(path)
        except FileNotFoundError:
            return None

    def read_all(self) -> tuple[tuple[Manifest, ...], tuple[str, ...]]:
        """All that can be read, and a sentence about each that cannot."""
        found: list[Manifest] = []
        problems: list[str] = []
        for path in sorted(self.root.glob("*.json")):
            try:
                found.append(_decode(path))
            except FileNotFoundError:
                continue
            except StoreCorrupt as problem:
                problems.append(str(problem))
        return tuple(found), tuple(problems)

    def write(self, manifest: Manifest) -> None:
        """Raises HubError when the disk refuses."""
        path = self._path(parse_name(manifest.name).key)
        temporary = path.with_name(f".{secrets.token_hex(8)}")
        try:
            self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
            with temporary.open("xb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(manifest)))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            sync_folder(self.root)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            raise HubError(f"The store at {self.root.parent} cannot be written: {error.strerror}.") from error

    def delete(self, manifest: Manifest) -> None:
        self._path(parse_name(manifest.name).key).unlink(missing_ok=True)

    def _path(self, key: str) -> Path:
        return self.root / (quote(key, safe="") + ".json")


def _decode(path: Path) -> Manifest:
    hint = "Import the model again, or delete that file to stop this message."
    try:
        with path.open("rb") as file:
            data = file.read(MAX_MANIFEST_BYTES + 1)
        manifest = msgspec.json.decode(data, type=Manifest)
        name = parse_name(manifest.name)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreCorrupt(f"The manifest {path} cannot be read: {error.strerror}.", hint=hint) from error
    except (msgspec.MsgspecError, HubError, UnicodeDecodeError) as error:
        raise StoreCorrupt(f"The manifest {path} is damaged: {error}", hint=hint) from error
    if manifest.format > FORMAT:
        raise StoreCorrupt(
            f"The manifest {path} was written by a later version of localllm.",
            hint="Update this installation.",
        )
    if not manifest.files or path.name != quote(name.key, safe="") + ".json":
        raise StoreCorrupt(f"The manifest {path} does not belong to its name.", hint=hint)
    return manifest
