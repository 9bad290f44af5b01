"""Stores of other tools, written as those tools write them."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path


def digest_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def link(source: Path, target: Path) -> Path:
    """A second name of the file, as cheap as can be; its own inode is not needed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    os.link(source, target)
    return target


def put(content: bytes, target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    return target


def ollama_model(root: Path, name: str, content: bytes, *, projector: bytes | None = None) -> Path:
    """``name`` like ``library/qwen3/8b``; the blob's path."""
    layers = [("model", content), *([("projector", projector)] if projector else []), ("license", b"MIT")]
    entries = []
    for kind, data in layers:
        digest = hashlib.sha256(data).hexdigest()
        put(data, root / "blobs" / f"sha256-{digest}")
        media = f"application/vnd.ollama.image.{kind}"
        entries.append({"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)})
    manifest = json.dumps({"schemaVersion": 2, "layers": entries}).encode()
    put(manifest, root / "manifests" / "registry.ollama.ai" / name)
    return root / "blobs" / f"sha256-{hashlib.sha256(content).hexdigest()}"


def hugging_face_file(
    root: Path, repository: str, name: str, content: bytes, *, revision: str = "abc123"
) -> Path:
    """A file of a snapshot: a link to a blob named by its digest."""
    folder = root / f"models--{repository.replace('/', '--')}"
    blob = put(content, folder / "blobs" / hashlib.sha256(content).hexdigest())
    target = folder / "snapshots" / revision / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.symlink_to(os.path.relpath(blob, target.parent))
    return target
