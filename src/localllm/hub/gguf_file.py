"""Opening GGUF files on disk: regular files only, and the parts of a split model together."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from localllm.core.errors import GGUFError
from localllm.core.gguf import GGUFHeader, TensorInfo, parse_header

MAX_PARTS = 1_000

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)


class FileSource:
    """A ``ByteSource`` over an open file descriptor."""

    def __init__(self, descriptor: int, size: int) -> None:
        self._descriptor = descriptor
        self._size = size

    @property
    def size(self) -> int:
        return self._size

    def read_at(self, offset: int, length: int) -> bytes:
        os.lseek(self._descriptor, offset, os.SEEK_SET)
        pieces: list[bytes] = []
        while length:
            piece = os.read(self._descriptor, length)
            if not piece:
                break
            pieces.append(piece)
            length -= len(piece)
        return b"".join(pieces)


def read_header(path: str | os.PathLike[str]) -> GGUFHeader:
    """The header of the file; of a split model, of all its parts as if they were one file.

    ``size_bytes`` is then the sum of the parts. Takes about 0.1 s for a vocabulary of 262,144 words.

    Raises:
        GGUFError: it is not a regular file, cannot be read, is not a model, or a part is missing or wrong.
    """
    file = Path(path)
    first = read_part(file)
    count = _split_figure(first, "split.count", 1)
    if count <= 1:
        return first
    parts = [first, *(read_part(part) for part in split_paths(file, count)[1:])]
    return join_headers(file.name, parts)


def split_paths(path: Path, count: int) -> list[Path]:
    """The files of a split model, in order, derived from the first one's name.

    Raises:
        GGUFError: the name is not that of the first part, or its count is not the header's.
    """
    match = _PART.fullmatch(path.name)
    if match is None:
        raise GGUFError(
            f"The file is part of a model split in {count}, but its name is not NAME-00001-of-{count:05d}.gguf."
        )
    if int(match["count"]) != count:
        raise GGUFError(f"The file's name says {int(match['count'])} parts, its header {count}.")
    if int(match["number"]) != 1:
        raise GGUFError(
            f"The file is part {int(match['number'])} of {count} of a split model.",
            hint=f"Name the first part: {match['stem']}-00001-of-{count:05d}.gguf",
        )
    return [path.with_name(f"{match['stem']}-{n:05d}-of-{count:05d}.gguf") for n in range(1, count + 1)]


def read_part(path: Path) -> GGUFHeader:
    """The header of this one file, whatever set it is a part of. Raises GGUFError as ``read_header``."""
    flags = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        # non-blocking: opening a pipe that nobody writes to would wait for ever
        descriptor = os.open(path, flags)
    except OSError as error:
        raise GGUFError(f"Cannot open {path.name}: {error.strerror}.") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise GGUFError(f"{path.name} is not a regular file.")
        return parse_header(FileSource(descriptor, status.st_size))
    except OSError as error:
        raise GGUFError(f"Cannot read {path.name}: {error.strerror}.") from error
    finally:
        os.close(descriptor)


def _split_figure(header: GGUFHeader, key: str, default: int) -> int:
    value = header.metadata.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int):
        raise GGUFError(f"{key} is not a whole number.")
    if not 0 <= value <= MAX_PARTS and key != "split.tensors.count":
        raise GGUFError(f"{key} is {value}; at most {MAX_PARTS} parts are believable.")
    return value


def join_headers(name: str, parts: Sequence[GGUFHeader]) -> GGUFHeader:
    """The headers of a split model's parts, in order, as if they were one file. Raises GGUFError when they are not."""
    tensors: dict[str, TensorInfo] = {}
    for index, part in enumerate(parts):
        number, count = _split_figure(part, "split.no", 0), _split_figure(part, "split.count", 1)
        if (number, count) != (index, len(parts)):
            raise GGUFError(
                f"Part {index + 1} of {name} says in its header that it is part {number + 1} of {count}."
            )
        for tensor in part.tensors:
            if tensor.name in tensors:
                raise GGUFError(f"The tensor {tensor.name!r:.80} is in more than one part.")
            tensors[tensor.name] = tensor
    expected = _split_figure(parts[0], "split.tensors.count", len(tensors))
    if expected != len(tensors):
        raise GGUFError(f"The parts of {name} hold {len(tensors)} tensors, but {expected} belong to it.")
    first = parts[0]
    return GGUFHeader(
        version=first.version,
        metadata=first.metadata,
        tensors=tuple(tensors.values()),
        alignment=first.alignment,
        data_offset=first.data_offset,
        size_bytes=sum(part.size_bytes for part in parts),
    )
