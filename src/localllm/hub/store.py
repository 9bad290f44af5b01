"""The model store: which models are here, taking one in, and letting one go.

A model is a manifest (small, JSON, replaced atomically) that names its blobs by digest. Everything that could be
half done is done before the manifest is written, so a kill at any moment leaves either the model or nothing. The
service owns the store and is its only writer; ``Store`` serialises its own threads and keeps no other state.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from localllm.core.control import ModelSummary
from localllm.core.errors import (
    ChecksumMismatch,
    Conflict,
    ModelAmbiguous,
    ModelNotFound,
    StoreCorrupt,
)
from localllm.core.facts import ModelFacts, facts_from_header
from localllm.core.generation import Sampling
from localllm.hub.blobs import Blobs, Progress, Staged, sha256_of
from localllm.hub.candidate import examine
from localllm.hub.gguf_file import read_header
from localllm.hub.manifest import FORMAT, FileEntry, Manifest, Manifests
from localllm.hub.names import near_names, parse_name

ImportMode = Literal["copy", "link", "reference"]


class StoredModel(Struct, frozen=True, kw_only=True):
    """A model that is here. ``path`` is the file an engine loads (the first part of a split model).

    ``sha256`` is None for a split model and for one that was left where it is. ``sampling`` are the model's own
    defaults, between what a request says and what the engine would do. ``problem`` says, in words, why it cannot be
    loaded at the moment (its file is gone or has changed). ``name_there`` is what its owner calls it, where that is
    another tool.
    """

    name: str
    path: Path
    size_bytes: int
    sha256: str | None
    quant: str | None
    architecture: str | None
    parameters: int | None
    trained_context_length: int | None
    capabilities: tuple[str, ...]
    chat_template: str | None
    stop: tuple[str, ...]
    sampling: Sampling
    licence: str | None
    source: str | None
    owner: str
    added_at: float
    mmproj_path: Path | None
    problem: str | None = None
    name_there: str | None = None

    @property
    def key(self) -> str:
        """Identifies the file over time, for what is measured of it: its digest, else its name and size."""
        return f"sha256:{self.sha256}" if self.sha256 else f"file:{self.path.name}:{self.size_bytes}"

    def summary(self, *, loaded: bool = False) -> ModelSummary:
        """What lists show."""
        return ModelSummary(
            name=self.name,
            quant=self.quant,
            size_bytes=self.size_bytes,
            architecture=self.architecture,
            parameters=self.parameters,
            trained_context_length=self.trained_context_length,
            owner=self.owner,
            path=str(self.path),
            capabilities=self.capabilities,
            loaded=loaded,
            added_at=self.added_at,
            problem=self.problem,
        )


@dataclass(frozen=True)
class _Taken:
    """What a manifest will say of files that are ready; ``adopt`` makes it true."""

    entries: tuple[FileEntry, ...]
    staged: Staged | None = None

    def adopt(self) -> tuple[FileEntry, ...]:
        if self.staged is not None:
            self.staged.adopt()
        return self.entries


class Scan(Struct, frozen=True):
    """Everything in the store, by name, and what in it could not be read."""

    models: tuple[StoredModel, ...]
    problems: tuple[str, ...]


class Store:
    """``root`` is made at the first import; a store that is not there yet is an empty one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._blobs = Blobs(root / "blobs")
        self._manifests = Manifests(root / "manifests")
        self._lock = threading.Lock()

    def list(self) -> tuple[StoredModel, ...]:
        """Every readable model, by name."""
        return self.scan().models

    def scan(self) -> Scan:
        """Every readable model and, in words, every manifest that is broken: those are skipped, not fatal."""
        manifests, problems = self._manifests.read_all()
        models = sorted(
            (self._model(manifest) for manifest in manifests), key=lambda model: model.name.lower()
        )
        return Scan(tuple(models), problems)

    def get(self, name: str) -> StoredModel:
        """The model of that name; without a quantisation, the only one that is here.

        Raises BadName, ModelNotFound (with near names), ModelAmbiguous (several quantisations) or StoreCorrupt (its
        manifest cannot be read).
        """
        asked = parse_name(name)
        manifest = self._manifests.read(asked)
        if manifest is not None:
            return self._model(manifest)
        models = self.list()
        if asked.tag is None:
            variants = [model for model in models if parse_name(model.name).base.lower() == asked.key]
            if len(variants) == 1:
                return variants[0]
            if variants:
                names = ", ".join(model.name for model in variants)
                raise ModelAmbiguous(
                    f"{name!r} is here in {len(variants)} quantisations.",
                    hint=f"Say which: {names}",
                    param="model",
                    details={"names": [model.name for model in variants]},
                )
        raise ModelNotFound(name, near=near_names(name, (model.name for model in models)))

    def import_file(
        self,
        path: Path,
        *,
        name: str | None = None,
        mode: ImportMode = "copy",
        chat_template: str | None = None,
        stop: Sequence[str] = (),
        sampling: Sampling | None = None,
        licence: str | None = None,
        source: str | None = None,
        mmproj: Path | None = None,
        on_progress: Progress | None = None,
    ) -> StoredModel:
        """Take a GGUF file (or the first part of a split one) into the store; its header is read before anything else.

        ``mode`` copy, link (hard link, same disk) or reference (the file stays where it is, and is not hashed). A
        vision projector beside the model comes along. Importing the same file again under its name changes what is
        given and keeps the rest. ``on_progress`` may raise to cancel: nothing is left behind.

        Raises NotFound, GGUFError, BadName, Conflict (the name is taken, no hard link), DiskFull or HubError.
        """
        found = examine(path, projector=mmproj)
        name = str(found.name(name))
        _refuse_other(self._manifests.read(parse_name(name)), found.parts, mode)
        manifest = Manifest(
            format=FORMAT,
            name=name,
            files=(),
            quant=found.quant,
            architecture=found.facts.architecture,
            parameters=found.facts.parameters,
            trained_context_length=found.facts.trained_context_length,
            capabilities=found.facts.capabilities,
            chat_template=chat_template,
            stop=tuple(stop),
            sampling=sampling or Sampling(),
            licence=licence or found.facts.licence,
            source=source or str(path.absolute()),
            added_at=time.time(),
        )
        self.root.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (
            self._taken(found.parts, mode, on_progress) as files,
            self._taken((found.projector,) if found.projector else (), mode, None) as projector,
            self._lock,  # from adopting a blob to naming it in a manifest, no removal may think it unused
        ):
            before = self._manifests.read(parse_name(name))
            if before is not None and before.files != files.entries:
                raise _taken_by_another(before.name)
            manifest = msgspec.structs.replace(
                _renewed(before, manifest),
                files=files.adopt(),
                mmproj=next(iter(projector.adopt()), None),
            )
            self._manifests.write(manifest)
        return self._model(manifest)

    def publish(self, manifest: Manifest, files: Sequence[Path]) -> StoredModel:
        """Take in what was downloaded and verified: ``files``, in the manifest's order, move to their places.

        They must lie on the store's disk; one may be in its place already. Raises HubError when the disk refuses.
        """
        with self._lock:
            for source, target in zip(files, self._all_paths(manifest), strict=True):
                self._blobs.adopt_file(source, target)
            self._manifests.write(manifest)
        return self._model(manifest)

    def places(self, manifest: Manifest) -> Sequence[Path]:
        """Where each file of the manifest belongs, in its order, the projector last; whether it is there or not."""
        return self._all_paths(manifest)

    def manifest(self, name: str) -> Manifest | None:
        """What is written down about the model of exactly that name. Raises BadName or StoreCorrupt."""
        return self._manifests.read(parse_name(name))

    def remove(self, name: str) -> int:
        """Forget the model and delete what no model needs any more; the bytes that this freed.

        What a kill in the middle of an import or removal left goes along, unless a manifest cannot be read: what that
        one needs is not known. Raises what ``get`` raises. Whether the model is loaded is the caller's question.
        """
        model = self.get(name)
        with self._lock:
            manifest = self._manifests.read(parse_name(model.name))
            if manifest is None:
                raise ModelNotFound(name)
            own = set(self._blob_paths(manifest))
            self._manifests.delete(manifest)
            others, problems = self._manifests.read_all()
            needed = {path for other in others for path in self._blob_paths(other)}
            candidates = own if problems else own | set(self._blobs.first_files())
            return sum(self._blobs.remove(path) for path in candidates - needed if path.exists())

    def collect(self) -> int:
        """Delete blobs that no model needs; the bytes that this freed. Nothing while a manifest cannot be read."""
        with self._lock:
            manifests, problems = self._manifests.read_all()
            if problems:
                return 0
            needed = {path for manifest in manifests for path in self._blob_paths(manifest)}
            return sum(self._blobs.remove(path) for path in set(self._blobs.first_files()) - needed)

    def verify(self, name: str, on_progress: Progress | None = None) -> StoredModel:
        """Read the model's files again and compare them with what was stored.

        Raises ChecksumMismatch, StoreCorrupt (a file is gone) and what ``get`` raises.
        """
        model = self.get(name)
        manifest = self._manifests.read(parse_name(model.name))
        if manifest is None or model.problem:
            raise StoreCorrupt(
                f"{model.name}: {model.problem}", hint=f"Remove it with: localllm rm {model.name}"
            )
        entries = (*manifest.files, *((manifest.mmproj,) if manifest.mmproj else ()))
        total = sum(entry.size_bytes for entry in entries)
        done = 0

        def step(count: int) -> None:
            nonlocal done
            done += count
            if on_progress:
                on_progress(done, total)

        for entry, path in zip(entries, self._all_paths(manifest), strict=True):
            if entry.sha256 is not None and sha256_of(path, step) != entry.sha256:
                raise ChecksumMismatch(
                    f"{path} is not what was stored as {model.name}: its SHA-256 differs.",
                    hint=f"Remove the model (localllm rm {model.name}) and import it again.",
                )
        return model

    def facts(self, name: str) -> ModelFacts:
        """The figures in the model's header. Raises GGUFError and what ``get`` raises."""
        return facts_from_header(read_header(self.get(name).path))

    @contextmanager
    def _taken(
        self, parts: Sequence[Path], mode: ImportMode, on_progress: Progress | None
    ) -> Iterator[_Taken]:
        """``parts`` copied or linked under a temporary name, or only looked at (``reference``)."""
        sizes = [part.stat().st_size for part in parts]
        if mode == "reference" or not parts:
            yield _Taken(
                tuple(
                    FileEntry(size_bytes=size, path=str(part), modified_ns=part.stat().st_mtime_ns)
                    for part, size in zip(parts, sizes, strict=True)
                )
            )
            return
        with self._blobs.staged(parts, mode=mode, on_progress=on_progress) as staged:
            entries = tuple(
                FileEntry(size_bytes=size, sha256=digest)
                for size, digest in zip(sizes, staged.digests, strict=True)
            )
            yield _Taken(entries, staged)

    def _blob_paths(self, manifest: Manifest) -> Sequence[Path]:
        return [
            path
            for path, entry in zip(self._all_paths(manifest), manifest.entries, strict=True)
            if entry.sha256 is not None
        ]

    def _all_paths(self, manifest: Manifest) -> Sequence[Path]:
        """Where every file of the manifest lies, in its order, the projector last."""
        digests = [entry.sha256 for entry in manifest.files if entry.sha256 is not None]
        paths: list[Path] = []
        for number, entry in enumerate(manifest.files, start=1):
            if entry.sha256 is None:
                paths.append(Path(entry.path or ""))
            elif len(manifest.files) == 1:
                paths.append(self._blobs.path(entry.sha256))
            else:
                paths.append(self._blobs.set_path(digests, number))
        if manifest.mmproj is not None:
            single = manifest.mmproj
            paths.append(self._blobs.path(single.sha256) if single.sha256 else Path(single.path or ""))
        return paths

    def _model(self, manifest: Manifest) -> StoredModel:
        paths = self._all_paths(manifest)
        single = len(manifest.files) == 1
        return StoredModel(
            name=manifest.name,
            path=paths[0],
            size_bytes=sum(entry.size_bytes for entry in manifest.files),
            sha256=manifest.files[0].sha256 if single else None,
            quant=manifest.quant,
            architecture=manifest.architecture,
            parameters=manifest.parameters,
            trained_context_length=manifest.trained_context_length,
            capabilities=_capabilities(manifest),
            chat_template=manifest.chat_template,
            stop=manifest.stop,
            sampling=manifest.sampling,
            licence=manifest.licence,
            source=manifest.source,
            owner="localllm",
            added_at=manifest.added_at,
            mmproj_path=paths[-1] if manifest.mmproj else None,
            problem=_problem(manifest, paths),
        )


def _capabilities(manifest: Manifest) -> tuple[str, ...]:
    """What the file can do, and what it can with what came from outside: a chat template, a projector."""
    came_along = {"chat": manifest.chat_template, "vision": manifest.mmproj}
    added = (word for word, here in came_along.items() if here)
    return tuple(dict.fromkeys((*manifest.capabilities, *added)))


def _problem(manifest: Manifest, paths: Sequence[Path]) -> str | None:
    for entry, path in zip(manifest.entries, paths, strict=True):
        try:
            status = path.stat()
        except OSError as error:
            return f"its file {path} cannot be found ({error.strerror})."
        changed = entry.modified_ns is not None and status.st_mtime_ns != entry.modified_ns
        if status.st_size != entry.size_bytes or changed:
            return f"its file {path} has changed since it was imported."
    return None


def _refuse_other(before: Manifest | None, parts: Sequence[Path], mode: ImportMode) -> None:
    """Refuse a taken name before gigabytes are copied, where it is plain already that the files are not the same."""
    if before is None:
        return
    referenced = [entry.path for entry in before.files]
    same_place = referenced == [str(part) for part in parts]
    same_size = [part.stat().st_size for part in parts] == [entry.size_bytes for entry in before.files]
    stored = all(entry.sha256 for entry in before.files)
    if not same_size or (not same_place if mode == "reference" else not stored):
        raise _taken_by_another(before.name)


def _taken_by_another(name: str) -> Conflict:
    return Conflict(
        f"The store has a model called {name} already, and it is not this file.",
        hint=f"Give this one another name with --name, or remove that one: localllm rm {name}",
        param="name",
    )


def _renewed(before: Manifest | None, now: Manifest) -> Manifest:
    """``now``, with what an earlier import of the same file was given and this one was not."""
    if before is None:
        return now
    return msgspec.structs.replace(
        now,
        chat_template=now.chat_template or before.chat_template,
        stop=now.stop or before.stop,
        sampling=before.sampling if now.sampling == Sampling() else now.sampling,
        added_at=before.added_at,
    )
