"""A file that may become a model of the store: what it is, what belongs to it, and what it would be called.

Everything is read from the header and the names around it; nothing is copied yet.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from localllm.core.errors import GGUFError
from localllm.core.facts import ModelFacts, facts_from_header
from localllm.hub.blobs import open_regular
from localllm.hub.gguf_file import read_header
from localllm.hub.names import ModelName, base_of_file, parse_name, parse_shard, quant_of_file


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """``parts`` are the model's files in order, ``projector`` the vision projector that comes along."""

    facts: ModelFacts
    parts: tuple[Path, ...]
    projector: Path | None

    @property
    def quant(self) -> str | None:
        """The header's word, else the file name's."""
        return self.facts.quant or quant_of_file(self.parts[0].name)

    def name(self, asked: str | None) -> ModelName:
        """The name asked for, or the file's; the quantisation is added where it is missing. Raises BadName."""
        name = parse_name(asked) if asked else ModelName(base_of_file(self.parts[0].name))
        return name if name.tag else ModelName(name.base, self.quant)


def examine(path: Path, *, projector: Path | None = None) -> Candidate:
    """Read the header of ``path`` (of a split model, of all parts) and look at what lies beside it.

    Raises NotFound, or GGUFError: no regular file, no model, a part is missing.
    """
    path = path.absolute()
    with open_regular(path):
        pass
    parts = _parts_of(path)
    facts = facts_from_header(read_header(path))
    return Candidate(facts=facts, parts=parts, projector=projector or _projector_beside(path))


def _parts_of(path: Path) -> tuple[Path, ...]:
    shard = parse_shard(path.name)
    if shard is None or shard.count == 1:
        return (path,)
    parts = tuple(path.with_name(shard.file_name(number)) for number in range(1, shard.count + 1))
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise GGUFError(
            f"{path.name} is one of {shard.count} parts, and {', '.join(missing)} is missing beside it.",
            hint="All parts must lie in one folder under their own names.",
        )
    return parts


def _projector_beside(path: Path) -> Path | None:
    """The one mmproj file of a folder that holds one model only; among several models it is nobody's."""
    neighbours = [file for file in path.parent.glob("*.gguf") if file.is_file()]
    projectors = [file for file in neighbours if "mmproj" in file.name.lower()]
    bases = {base_of_file(file.name) for file in neighbours if file not in projectors}
    return projectors[0] if len(projectors) == 1 and len(bases) == 1 else None
