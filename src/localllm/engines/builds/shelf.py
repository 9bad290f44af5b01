"""The builds that lie side by side under one folder, and which of them is in use.

``<root>/<name>/`` is one build (a ``pip --target`` folder) with ``build.json`` in it; ``<root>/in-use`` names the one
workers run. Both are written beside and renamed, so a crash leaves the old state.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import msgspec
from msgspec import Struct

from localllm.core.errors import BadName, NotFound

_NAME = re.compile(r"[a-z0-9][a-z0-9.\-]{0,80}")
_RECORD = "build.json"


class Build(Struct, frozen=True, kw_only=True):
    """One installed build. ``cpu_features`` and ``devices`` are what the build itself said when it was started."""

    name: str
    version: str
    backend: str
    kind: str
    installed_at: float
    cpu_features: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()


class Shelf:
    """The folder of builds. Reading never fails on a damaged entry: it is left out and named by ``damaged``."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._pointer = root / "in-use"

    def builds(self) -> tuple[Build, ...]:
        found = []
        for folder in sorted(self.root.glob("*/")):
            build = self._read(folder)
            if build is not None:
                found.append(build)
        return tuple(found)

    def damaged(self) -> tuple[str, ...]:
        """Folders here that are no build: leftovers of an install that was cut short."""
        return tuple(f.name for f in sorted(self.root.glob("*/")) if self._read(f) is None)

    def in_use(self) -> Build | None:
        """The chosen build, or None: then the environment localllm runs from is used."""
        try:
            name = self._pointer.read_text("utf-8").strip()
        except OSError:
            return None
        return self._read(self.root / name) if _NAME.fullmatch(name) else None

    def path_of(self, name: str) -> Path:
        """The folder of a build.

        Raises:
            BadName: the name could not be a build's.
            NotFound: no such build.
        """
        if not _NAME.fullmatch(name):
            raise BadName(f"{name!r} cannot be the name of a build.")
        folder = self.root / name
        if self._read(folder) is None:
            known = ", ".join(b.name for b in self.builds()) or "none"
            raise NotFound(f"There is no build {name!r}; installed: {known}.", hint="localllm engine install")
        return folder

    def use(self, name: str | None) -> None:
        """Choose a build; None goes back to the environment's own."""
        if name is None:
            self._pointer.unlink(missing_ok=True)
            return
        self.path_of(name)
        _write_atomically(self._pointer, name.encode())

    def remove(self, name: str) -> None:
        """Delete a build; the one in use is first given up."""
        folder = self.path_of(name)
        in_use = self.in_use()
        if in_use is not None and in_use.name == name:
            self.use(None)
        shutil.rmtree(folder)

    def publish(self, staged: Path, build: Build) -> Path:
        """Move a finished, checked folder into place under ``build.name``; an older one of that name is replaced."""
        (staged / _RECORD).write_bytes(msgspec.json.format(msgspec.json.encode(build)))
        target = self.root / build.name
        outgoing = self.root / f".{build.name}.old"
        shutil.rmtree(outgoing, ignore_errors=True)
        if target.exists():
            target.rename(outgoing)
        staged.rename(target)
        shutil.rmtree(outgoing, ignore_errors=True)
        return target

    def _read(self, folder: Path) -> Build | None:
        try:
            build = msgspec.json.decode((folder / _RECORD).read_bytes(), type=Build)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None
        return build if build.name == folder.name else None


def _write_atomically(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    beside = path.with_name(f".{path.name}.new")
    with beside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
