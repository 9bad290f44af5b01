"""Which file a model was loaded from, so that a file changed under a running engine is noticed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localllm.core.errors import LoadFailed, ModelChanged


@dataclass(frozen=True)
class FileIdentity:
    """llama.cpp maps the file: were it cut short, the engine would die of it (SIGBUS) sooner or later."""

    path: Path
    device: int
    inode: int
    size_bytes: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> FileIdentity:
        """Raises LoadFailed when there is no such file."""
        try:
            stat = path.stat()
        except OSError as error:
            raise LoadFailed(
                f"The model file {path.name} cannot be read: {error.strerror}.",
                hint="See what is there with: localllm list",
            ) from error
        return cls(path, stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)

    def require_unchanged(self) -> None:
        """Raises ModelChanged when the path now leads to something else, or nowhere."""
        try:
            now = FileIdentity.of(self.path)
        except LoadFailed as error:
            raise ModelChanged(
                f"The model file {self.path.name} is no longer there.",
                hint="The model keeps running until it is unloaded, but not for new requests.",
            ) from error
        if now != self:
            raise ModelChanged(
                f"The model file {self.path.name} was changed after it was loaded.",
                hint="Unload the model and load it again.",
            )
