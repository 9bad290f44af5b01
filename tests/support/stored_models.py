"""Models for tests that never read the file: a name, and a file that is there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from localllm.core.errors import ModelNotFound
from localllm.core.generation import Sampling
from localllm.hub.store import StoredModel


def stored_model(name: str, path: Path, *, sampling: Sampling | None = None) -> StoredModel:
    path.write_bytes(b"weights")
    return StoredModel(
        name=name,
        path=path,
        size_bytes=7,
        sha256=None,
        quant=None,
        architecture="test",
        parameters=None,
        trained_context_length=None,
        capabilities=(),
        chat_template=None,
        stop=(),
        sampling=sampling or Sampling(),
        licence=None,
        source=None,
        owner="localllm",
        added_at=0.0,
        mmproj_path=None,
    )


class ListedModels:
    """The part of the store that the manager asks."""

    def __init__(self, models: Sequence[StoredModel]) -> None:
        self.models = {model.name: model for model in models}

    def replace_file(self, name: str, content: bytes) -> None:
        self.models[name].path.write_bytes(content)

    def remove_file(self, name: str) -> None:
        self.models[name].path.unlink()

    def get(self, name: str) -> StoredModel:
        if name not in self.models:
            raise ModelNotFound(name, near=tuple(self.models))
        return self.models[name]

    def list(self) -> tuple[StoredModel, ...]:
        return tuple(self.models.values())
