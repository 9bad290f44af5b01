"""Models that other tools keep on this machine: found, listed and loaded where they lie, never copied and never written.

Each store has its own layout: Ollama's manifests name blobs, Hugging Face's cache has snapshots of links to blobs,
llama.cpp's cache is one folder, LM Studio's has publisher/model, and a plain folder is searched as it is. Looking costs
a few stats per model; headers are read afterwards, within a budget of time, and remembered by file, size and mtime.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from localllm.core.errors import BadName, GGUFError
from localllm.core.facts import facts_from_header
from localllm.core.generation import Sampling
from localllm.hub.foreign import foreign_reason
from localllm.hub.gguf_file import read_header
from localllm.hub.names import base_of_file, parse_name, quant_of_file
from localllm.hub.sources.base import RemoteFile
from localllm.hub.sources.files import projectors_of, variants_of
from localllm.hub.store import StoredModel

MAX_MANIFEST_BYTES = 4 << 20
MAX_DEPTH = 6
MAX_ENTRIES = 20_000
HEADER_BUDGET_S = 0.5

_DIGEST = re.compile(r"sha256[-:]([0-9a-f]{64})")
_LAYER = "application/vnd.ollama.image."


class Places(Struct, frozen=True, kw_only=True):
    """Where to look, by tool; folders that are not there cost nothing."""

    ollama: tuple[Path, ...] = ()
    hugging_face: tuple[Path, ...] = ()
    llama_cpp: tuple[Path, ...] = ()
    lm_studio: tuple[Path, ...] = ()
    folders: tuple[Path, ...] = ()


def places_from(env: Mapping[str, str], *, folders: Iterable[str] = ()) -> Places:
    """The tools' own defaults and the variables by which they are moved."""
    home = Path(env.get("HOME") or env.get("USERPROFILE") or "~").expanduser()
    cache = Path(env["XDG_CACHE_HOME"]) if env.get("XDG_CACHE_HOME") else home / ".cache"
    hub = env.get("HF_HUB_CACHE") or (f"{env['HF_HOME']}/hub" if env.get("HF_HOME") else None)
    ollama = [Path(env["OLLAMA_MODELS"])] if env.get("OLLAMA_MODELS") else []
    return Places(
        ollama=(*ollama, home / ".ollama" / "models", Path("/usr/share/ollama/.ollama/models")),
        hugging_face=(Path(hub) if hub else cache / "huggingface" / "hub",),
        llama_cpp=(Path(env["LLAMA_CACHE"]) if env.get("LLAMA_CACHE") else cache / "llama.cpp",),
        lm_studio=(home / ".lmstudio" / "models", cache / "lm-studio" / "models"),
        folders=tuple(Path(folder).expanduser() for folder in folders),
    )


class Found(Struct, frozen=True, kw_only=True):
    """One model in another tool's store. ``sha256`` where the store itself names files by it."""

    name: str
    owner: str
    files: tuple[Path, ...]
    size_bytes: int
    modified_ns: int
    identity: tuple[int, int]
    sha256: str | None = None
    quant: str | None = None
    projector: Path | None = None


class Header(Struct, frozen=True, kw_only=True):
    """What a header said; ``problem`` why the model cannot be run here."""

    quant: str | None = None
    architecture: str | None = None
    parameters: int | None = None
    trained_context_length: int | None = None
    capabilities: tuple[str, ...] = ()
    licence: str | None = None
    problem: str | None = None


class HeaderNotes:
    """Headers that were read before, by path, size and mtime; kept in a file between runs."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._notes: dict[str, Header] = {}
        self._changed = False
        if path is not None:
            try:
                self._notes = msgspec.json.decode(path.read_bytes(), type=dict[str, Header])
            except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
                self._notes = {}

    def get(self, found: Found) -> Header | None:
        return self._notes.get(_key(found))

    def read(self, found: Found) -> Header:
        """Read the header and remember it. Never raises: what is wrong with the file is its ``problem``."""
        try:
            header = read_header(found.files[0])
            reason = foreign_reason(header)
            facts = None if reason else facts_from_header(header)
        except GGUFError as error:
            reason, facts = error.message.rstrip("."), None
        if facts is None:
            note = Header(problem=f"{reason[0].upper()}{reason[1:]}." if reason else "It cannot be read.")
        else:
            note = Header(
                quant=facts.quant,
                architecture=facts.architecture,
                parameters=facts.parameters,
                trained_context_length=facts.trained_context_length,
                capabilities=facts.capabilities,
                licence=facts.licence,
            )
        self._notes[_key(found)] = note
        self._changed = True
        return note

    def save(self, found: Iterable[Found]) -> None:
        """Write down the headers of what is still there; a cache that cannot be written is none."""
        if self._path is None or not self._changed:
            return
        keys = {_key(each) for each in found}
        self._notes = {key: note for key, note in self._notes.items() if key in keys}
        beside = self._path.with_suffix(".new")
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            beside.write_bytes(msgspec.json.encode(self._notes))
            beside.replace(self._path)
            self._changed = False
        except OSError:
            return


def discover(places: Places) -> tuple[Found, ...]:
    """Every model in the places, each file once, by name. Unreadable corners are left out."""
    walks: Sequence[tuple[Callable[[Path], Iterator[Found]], Iterable[Path]]] = (
        (_ollama, places.ollama),
        (_hugging_face, places.hugging_face),
        (lambda root: _folder(root, "llama.cpp", _file_name), places.llama_cpp),
        (lambda root: _folder(root, "lm_studio", _publisher_name), places.lm_studio),
        (lambda root: _folder(root, "folder", _file_name), places.folders),
    )
    kept: dict[tuple[int, int], Found] = {}
    for walk, roots in walks:
        for root in roots:
            for found in walk(root):
                kept.setdefault(found.identity, found)
    return tuple(sorted(kept.values(), key=lambda found: found.name.lower()))


def models_from(
    found: Sequence[Found], notes: HeaderNotes, taken: Iterable[str], *, budget_s: float = HEADER_BUDGET_S
) -> tuple[StoredModel, ...]:
    """The library entries of what was found; a name that is ``taken`` gets its owner in front.

    Headers that were not read before are read until ``budget_s`` is used up; the others follow at the next call.
    """
    names = {name.lower() for name in taken}
    until = time.monotonic() + budget_s
    models = []
    for each in found:
        header = notes.get(each)
        if header is None and time.monotonic() < until:
            header = notes.read(each)
        name = each.name if each.name.lower() not in names else f"{_slug(each.owner)}/{each.name}"
        if name.lower() in names:
            continue
        names.add(name.lower())
        models.append(_model(each, name, header or Header()))
    notes.save(found)
    return tuple(models)


def duplicates(models: Iterable[StoredModel]) -> tuple[tuple[StoredModel, ...], ...]:
    """Groups of models whose file has the same digest but lies on the disk more than once."""
    groups: dict[str, list[StoredModel]] = {}
    for model in models:
        if model.sha256 is not None:
            groups.setdefault(model.sha256, []).append(model)
    return tuple(tuple(group) for group in groups.values() if len({identity_of(m.path) for m in group}) > 1)


def _model(found: Found, name: str, header: Header) -> StoredModel:
    return StoredModel(
        name=name,
        path=found.files[0],
        size_bytes=found.size_bytes,
        sha256=found.sha256,
        quant=header.quant or found.quant,
        architecture=header.architecture,
        parameters=header.parameters,
        trained_context_length=header.trained_context_length,
        capabilities=tuple(dict.fromkeys((*header.capabilities, *(("vision",) if found.projector else ())))),
        chat_template=None,
        stop=(),
        sampling=Sampling(),
        licence=header.licence,
        source=str(found.files[0]),
        owner=found.owner,
        added_at=found.modified_ns / 1e9,
        mmproj_path=found.projector,
        problem=header.problem,
        name_there=found.name,
    )


# ---------------------------------------------------------------- the layouts


class _Layer(Struct):
    mediaType: str  # noqa: N815 - the registry's spelling
    digest: str
    size: int = 0


class _Manifest(Struct):
    layers: list[_Layer] = []


def _ollama(root: Path) -> Iterator[Found]:
    manifests = root / "manifests"
    for path in _walk(manifests):
        parts = path.relative_to(manifests).parts
        if len(parts) != 4:
            continue
        host, namespace, model, tag = parts
        if namespace == "localllm":
            continue  # made there from a file of ours, which is listed already
        try:
            with path.open("rb") as file:
                manifest = msgspec.json.decode(file.read(MAX_MANIFEST_BYTES), type=_Manifest)
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        blobs = {layer.mediaType.removeprefix(_LAYER): layer.digest for layer in manifest.layers}
        match = _DIGEST.fullmatch(blobs.get("model", ""))
        if match is None:
            continue
        prefix = "" if (host, namespace) == ("registry.ollama.ai", "library") else f"{namespace}/"
        prefix = prefix if host == "registry.ollama.ai" else f"{host}/{namespace}/"
        projector = _DIGEST.fullmatch(blobs.get("projector", ""))
        yield from _found(
            f"{prefix}{model}:{tag}",
            "ollama",
            (root / "blobs" / f"sha256-{match[1]}",),
            sha256=match[1],
            projector=root / "blobs" / f"sha256-{projector[1]}" if projector else None,
        )


def _hugging_face(root: Path) -> Iterator[Found]:
    for repository in _children(root):
        kind, _, rest = repository.name.partition("--")
        org, _, repo = rest.partition("--")
        if kind != "models" or not repo:
            continue
        snapshots = sorted(_children(repository / "snapshots"), key=_mtime, reverse=True)
        for snapshot in snapshots[:1]:
            yield from _models_in(snapshot, _walk(snapshot), "hugging_face", _always(f"{org}/{repo}"))


def _always(name: str) -> Callable[[str], str]:
    return lambda file: name


def _folder(root: Path, owner: str, name: Callable[[str], str]) -> Iterator[Found]:
    by_folder: dict[Path, list[Path]] = {}
    for path in _walk(root):
        if path.name.lower().endswith(".gguf"):
            by_folder.setdefault(path.parent, []).append(path)
    for paths in by_folder.values():
        yield from _models_in(root, paths, owner, name)


def _file_name(name: str) -> str:
    return base_of_file(name.rpartition("/")[2])


def _publisher_name(name: str) -> str:
    """LM Studio's folders are publisher/model; a file elsewhere is called by its own name."""
    parts = name.split("/")
    return f"{parts[0]}/{parts[1]}" if len(parts) == 3 else _file_name(name)


def _models_in(root: Path, paths: Iterable[Path], owner: str, name: Callable[[str], str]) -> Iterator[Found]:
    """The models among the GGUF files below ``root``, split sets together, projectors with them."""
    files = []
    for path in paths:
        if path.name.lower().endswith(".gguf"):
            relative = path.relative_to(root).as_posix()
            files.append(RemoteFile(source="url", name=relative, url=str(path), size_bytes=0))
    projector = next(iter(projectors_of(files)), None)
    for variant in variants_of(files):
        first = variant.files[0].name
        base = name(first)
        tag = variant.quant or quant_of_file(first)
        yield from _found(
            f"{base}:{tag}" if tag else base,
            owner,
            tuple(Path(file.url) for file in variant.files),
            quant=tag,
            projector=Path(projector.url) if projector else None,
        )


def _found(
    name: str,
    owner: str,
    files: tuple[Path, ...],
    *,
    sha256: str | None = None,
    quant: str | None = None,
    projector: Path | None = None,
) -> Iterator[Found]:
    """The model, when its name is one and all its files are regular and here (links are followed)."""
    try:
        parse_name(name)
        states = [file.stat() for file in files]
    except (BadName, OSError):
        return
    if any(not stat.S_ISREG(state.st_mode) for state in states):
        return
    if sha256 is None and len(files) == 1:
        # Hugging Face's blobs are named by their digest
        match = re.fullmatch(r"[0-9a-f]{64}", _target_name(files[0]))
        sha256 = match[0] if match else None
    yield Found(
        name=name,
        owner=owner,
        files=files,
        size_bytes=sum(state.st_size for state in states),
        modified_ns=states[0].st_mtime_ns,
        identity=(states[0].st_dev, states[0].st_ino),
        sha256=sha256,
        quant=quant,
        projector=projector if projector is not None and projector.is_file() else None,
    )


# ---------------------------------------------------------------- looking


def _walk(root: Path) -> Iterator[Path]:
    """Files below ``root``, folders that are links not entered, hidden ones left out, within limits."""
    pending: list[tuple[str, int]] = [(str(root), 0)]
    seen = 0
    while pending:
        folder, depth = pending.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in sorted(entries, key=lambda entry: entry.name):
                    seen += 1
                    if seen > MAX_ENTRIES:
                        return
                    if entry.name.startswith("."):
                        continue
                    if entry.is_dir(follow_symlinks=False):
                        if depth < MAX_DEPTH:
                            pending.append((entry.path, depth + 1))
                    else:
                        yield Path(entry.path)
        except OSError:
            continue


def _children(folder: Path) -> list[Path]:
    try:
        return [Path(entry.path) for entry in os.scandir(folder) if entry.is_dir()]
    except OSError:
        return []


def _mtime(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def identity_of(path: Path) -> tuple[int, int]:
    """(device, inode): the same for every name of one file; (0, 0) when it is gone."""
    try:
        state = path.stat()
    except OSError:
        return (0, 0)
    return (state.st_dev, state.st_ino)


def _target_name(path: Path) -> str:
    return path.readlink().name if path.is_symlink() else ""


def _slug(owner: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", owner.lower()).strip("-")


def _key(found: Found) -> str:
    return f"{found.files[0]}|{found.size_bytes}|{found.modified_ns}"
